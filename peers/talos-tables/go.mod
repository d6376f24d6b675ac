module talos-tables

go 1.26.5

// The schematic id is the digest of what this YAML library prints. Image Factory
// v1.4.0 is built with rc.4; machinery v1.14.1 would raise it to rc.6, which
// prints YAML 1.1 booleans, base-60 numbers and << in single, not double, quotes.
replace go.yaml.in/yaml/v4 => go.yaml.in/yaml/v4 v4.0.0-rc.4

require (
	github.com/siderolabs/image-factory v1.4.0
	github.com/siderolabs/talos/pkg/machinery v1.14.1
)

require (
	github.com/blang/semver/v4 v4.0.0 // indirect
	github.com/containerd/go-cni v1.1.13 // indirect
	github.com/containernetworking/cni v1.3.0 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/planetscale/vtprotobuf v0.6.1-0.20260702190614-8ae5a48058df // indirect
	github.com/siderolabs/crypto v0.6.5 // indirect
	github.com/siderolabs/gen v0.8.8 // indirect
	go.yaml.in/yaml/v4 v4.0.0-rc.6 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260810153831-ec0a7760b754 // indirect
	google.golang.org/grpc v1.83.2 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
