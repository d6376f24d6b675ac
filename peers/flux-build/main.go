// Command flux-build answers, with Flux's own libraries and without any network
// access, what the product answers by itself: which objects a folder comes to when
// Flux builds it for a Kustomization, what a text is once its variables are
// substituted, and what becomes of a whole repository. It reads one JSON object on stdin and writes one on stdout,
// answers in the order of the questions; status 1 = malformed question.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/fluxcd/pkg/envsubst"
	"github.com/fluxcd/pkg/kustomize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type build struct {
	Files         map[string]string
	Kustomization map[string]any // the Flux object; spec.path is where it builds
}

type text struct {
	Text   string
	Vars   map[string]string
	Strict bool
}

type question struct {
	Builds []build
	Texts  []text
	Trees  []tree
}

type built struct {
	Objects []json.RawMessage `json:"objects"`
	Error   string            `json:"error"`
}

type substituted struct {
	Text  string `json:"text"`
	Error string `json:"error"`
}

type answer struct {
	Builds []built       `json:"builds"`
	Texts  []substituted `json:"texts"`
	Trees  []judged      `json:"trees"`
}

func (b build) run() ([]json.RawMessage, error) {
	made, err := os.MkdirTemp("", "flux-build")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(made)
	root, err := filepath.EvalSymlinks(made)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(b.Files))
	for name := range b.Files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(b.Files[name]), 0o600); err != nil {
			return nil, err
		}
	}
	owner := unstructured.Unstructured{Object: b.Kustomization}
	path, _, err := unstructured.NestedString(b.Kustomization, "spec", "path")
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(root, path)
	if _, err := kustomize.NewGenerator(root, owner).WriteFile(folder); err != nil {
		return nil, err
	}
	resources, err := kustomize.SecureBuild(root, folder, false)
	if err != nil {
		return nil, err
	}
	_, isSubstituted, err := unstructured.NestedMap(b.Kustomization, "spec", "postBuild")
	if err != nil {
		return nil, err
	}
	objects := []json.RawMessage{}
	for _, resource := range resources.Resources() {
		if isSubstituted {
			_, err := kustomize.SubstituteVariables(context.Background(), nil, owner, resource,
				kustomize.SubstituteWithDryRun(true), kustomize.SubstituteWithStrict(true))
			if err != nil {
				return nil, err
			}
		}
		object, err := resource.MarshalJSON()
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func (t text) run() (string, error) {
	return envsubst.Eval(t.Text, func(name string) (string, bool) {
		value, exists := t.Vars[name]
		return value, exists || !t.Strict
	})
}

func run() error {
	var q question
	if err := json.NewDecoder(os.Stdin).Decode(&q); err != nil {
		return err
	}
	a := answer{Builds: []built{}, Texts: []substituted{}, Trees: []judged{}}
	said := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	for _, b := range q.Builds {
		objects, err := b.run()
		a.Builds = append(a.Builds, built{Objects: objects, Error: said(err)})
	}
	for _, t := range q.Texts {
		text, err := t.run()
		a.Texts = append(a.Texts, substituted{Text: text, Error: said(err)})
	}
	for _, t := range q.Trees {
		said, err := t.run()
		if err != nil {
			said.Error = err.Error()
		}
		a.Trees = append(a.Trees, said)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	return out.Encode(a)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
