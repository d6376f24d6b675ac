// Command talos-tables answers, with the vendor's own libraries and without any
// network access, two questions the product answers by itself: the Image Factory
// id (SHA-256) and canonical YAML of a schematic, and whether a Talos version
// accepts a Kubernetes version. It reads one JSON object on stdin and writes one
// on stdout, answers in the order of the questions; status 1 = malformed question.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/siderolabs/image-factory/pkg/schematic"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
)

type question struct {
	Schematics []struct{ ExtraKernelArgs, Extensions []string }
	Pairs      []struct{ Talos, Kubernetes string }
}

type identity struct {
	ID   string `json:"id"`
	YAML string `json:"yaml"`
}

type verdict struct {
	Supported bool   `json:"supported"`
	Error     string `json:"error"`
}

type answer struct {
	Schematics        []identity `json:"schematics"`
	Pairs             []verdict  `json:"pairs"`
	DefaultKubernetes string     `json:"defaultKubernetes"` // of the machinery linked in
	Machinery         string     `json:"machinery"`         // the Talos tag of that machinery
}

// check returns nil when the Talos version accepts the Kubernetes version.
func check(talos, kubernetes string) error {
	t, err1 := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: talos})
	k, err2 := compatibility.ParseKubernetesVersion(kubernetes)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return k.SupportedWith(t)
}

func run() error {
	var q question
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	in.DisallowUnknownFields()
	out.SetEscapeHTML(false)
	if err := in.Decode(&q); err != nil {
		return err
	}
	a := answer{[]identity{}, []verdict{}, constants.DefaultKubernetesVersion, gendata.VersionTag}
	for i, s := range q.Schematics {
		var cfg schematic.Schematic
		cfg.Customization.ExtraKernelArgs = s.ExtraKernelArgs
		cfg.Customization.SystemExtensions.OfficialExtensions = s.Extensions
		text, err1 := cfg.Marshal()
		id, err2 := cfg.ID()
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("schematic %d: %w", i, err)
		}
		a.Schematics = append(a.Schematics, identity{id, string(text)})
	}
	for _, p := range q.Pairs {
		v := verdict{Supported: true}
		if err := check(p.Talos, p.Kubernetes); err != nil {
			v = verdict{Error: err.Error()}
		}
		a.Pairs = append(a.Pairs, v)
	}
	return out.Encode(a)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "talos-tables:", err)
		os.Exit(1)
	}
}
