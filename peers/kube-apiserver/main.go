// Command kube-apiserver is Kubernetes' own API server, built from its published modules. Nothing is added and nothing
// left out: only the modules that its repository keeps beside itself are pinned here, in go.mod for one minor version
// and in the other .mod file for another.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
