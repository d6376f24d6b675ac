package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	notificationv1 "github.com/fluxcd/notification-controller/api/v1"
	notificationv1b3 "github.com/fluxcd/notification-controller/api/v1beta3"
	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/kustomize"
	"github.com/fluxcd/pkg/runtime/dependency"
	"github.com/fluxcd/pkg/sourceignore"
	"github.com/fluxcd/pkg/tar"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
)

// tree is a repository, followed from its first Kustomization as Flux's controllers
// follow it: what is archived of it, and what each Kustomization of it comes to.
type tree struct {
	Files  map[string]string
	Large  map[string]int // files of a Deployment and so many bytes of padding
	Links  []string
	Entry  map[string]any
	Given  []map[string]any // ConfigMaps and Secrets that are in the cluster already
	Strict bool
}

// followed is what the libraries say of one Kustomization.
type followed struct {
	Applies []string `json:"applies,omitempty"`
	Sealed  []string `json:"sealed,omitempty"` // Secrets that would hold what SOPS has encrypted
	Reason  string   `json:"reason,omitempty"`
	Error   string   `json:"error,omitempty"`
}

type judged struct {
	Kustomizations map[string]followed `json:"kustomizations"`
	Circles        []string            `json:"circles,omitempty"`
	Fields         []string            `json:"fields,omitempty"`
	Error          string              `json:"error,omitempty"`
}

// deployment is what is in a large file.
const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:1.29"}]}
`

// known answers, in the place of a cluster, what variables come from.
type known struct {
	client.Client
	objects map[string]map[string]any
}

func (k known) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := "ConfigMap"
	if _, ok := into.(*corev1.Secret); ok {
		kind = "Secret"
	}
	object, ok := k.objects[kind+" "+key.String()]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: strings.ToLower(kind) + "s"}, key.Name)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, into); err != nil {
		return err
	}
	// The API server does this with every Secret it is given.
	if secret, ok := into.(*corev1.Secret); ok {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		for name, value := range secret.StringData {
			secret.Data[name] = []byte(value)
		}
	}
	return nil
}

func (k known) add(object map[string]any) {
	u := unstructured.Unstructured{Object: object}
	if kind := u.GetKind(); u.GetAPIVersion() == "v1" && (kind == "ConfigMap" || kind == "Secret") {
		k.objects[kind+" "+u.GetNamespace()+"/"+u.GetName()] = object
	}
}

// fetched writes a tree, archives it as source-controller does, and unpacks it as
// kustomize-controller does.
func (t tree) fetched(root string) error {
	written := filepath.Join(root, "written")
	files := maps.Clone(t.Files)
	if files == nil {
		files = map[string]string{}
	}
	for name, size := range t.Large {
		line := strings.Repeat("#", 79) + "\n"
		files[name] = deployment + strings.Repeat(line, size/len(line)+1)
	}
	for name, text := range files {
		path := filepath.Join(written, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, name := range t.Links {
		path := filepath.Join(written, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.Symlink(written, path); err != nil {
			return err
		}
	}
	patterns, err := sourceignore.LoadIgnorePatterns(written, nil)
	if err != nil {
		return err
	}
	matcher := sourceignore.NewDefaultMatcher(patterns, nil)
	isLeftOut := func(path string, info os.FileInfo) bool {
		within, err := filepath.Rel(written, path)
		return err == nil && matcher.Match(strings.Split(within, string(filepath.Separator)), info.IsDir())
	}
	var archive bytes.Buffer
	if _, err := tar.Tar(written, &archive, tar.WithFilter(isLeftOut)); err != nil {
		return err
	}
	unpacked := filepath.Join(root, "tree")
	if err := os.Mkdir(unpacked, 0o700); err != nil {
		return err
	}
	return tar.Untar(&archive, unpacked, tar.WithMaxUntarSize(tar.UnlimitedUntarSize))
}

var errPath = errors.New("kustomization path not found")

// built is what kustomize-controller makes of a Kustomization, from the folder to the
// variables.
func (t tree) built(from string, own map[string]any, cluster known) ([]map[string]any, error) {
	// A build writes into the tree.
	root, err := os.MkdirTemp("", "flux-build")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, err
	}
	if err := os.CopyFS(root, os.DirFS(from)); err != nil {
		return nil, err
	}
	owner := unstructured.Unstructured{Object: own}
	path, _, err := unstructured.NestedString(own, "spec", "path")
	if err != nil {
		return nil, err
	}
	folder, err := securejoin.SecureJoin(root, path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(folder); err != nil {
		return nil, fmt.Errorf("%w: %s", errPath, strings.TrimPrefix(folder, root+"/"))
	}
	if _, err := kustomize.NewGenerator(root, owner).WriteFile(folder); err != nil {
		return nil, plain(err, root)
	}
	resources, err := kustomize.SecureBuild(root, folder, false)
	if err != nil {
		return nil, plain(err, root)
	}
	_, isSubstituted, err := unstructured.NestedMap(own, "spec", "postBuild")
	if err != nil {
		return nil, err
	}
	objects := []map[string]any{}
	for _, resource := range resources.Resources() {
		if isSubstituted {
			_, err := kustomize.SubstituteVariables(context.Background(), cluster, owner, resource,
				kustomize.SubstituteWithStrict(t.Strict))
			if err != nil {
				return nil, plain(err, root)
			}
		}
		object, err := resource.Map()
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// plain is an error without the place that it was built at.
func plain(err error, root string) error {
	return errors.New(strings.ReplaceAll(err.Error(), root, ""))
}

func source(own map[string]any) string {
	text := func(key string) string {
		value, _, _ := unstructured.NestedString(own, "spec", "sourceRef", key)
		return value
	}
	namespace := text("namespace")
	if namespace == "" {
		namespace = (&unstructured.Unstructured{Object: own}).GetNamespace()
	}
	return text("kind") + " " + namespace + "/" + text("name")
}

func named(object map[string]any) string {
	u := unstructured.Unstructured{Object: object}
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// pass follows all Kustomizations from the first.
func (t tree) pass(from string, cluster known) (map[string]followed, []map[string]any) {
	all, waiting, seen := map[string]followed{}, []map[string]any{t.Entry}, []map[string]any{}
	for len(waiting) > 0 {
		own := waiting[0]
		waiting = waiting[1:]
		u := unstructured.Unstructured{Object: own}
		name := u.GetNamespace() + "/" + u.GetName()
		if _, isKnown := all[name]; isKnown || source(own) != source(t.Entry) {
			continue
		}
		objects, err := t.built(from, own, cluster)
		said := followed{}
		switch {
		case errors.Is(err, errPath):
			said.Reason, said.Error = "ArtifactFailed", err.Error()
		case err != nil:
			said.Reason, said.Error = "BuildFailed", err.Error()
		}
		_, isElsewhere, _ := unstructured.NestedMap(own, "spec", "kubeConfig")
		for _, object := range objects {
			said.Applies = append(said.Applies, named(object))
			if isSealed(object) {
				said.Sealed = append(said.Sealed, named(object))
			}
			if isElsewhere {
				continue
			}
			seen = append(seen, object)
			of := unstructured.Unstructured{Object: object}
			if of.GroupVersionKind().Group == kustomizev1.GroupVersion.Group {
				waiting = append(waiting, object)
			}
		}
		sort.Strings(said.Applies)
		all[name] = said
	}
	return all, seen
}

// isSealed tells whether a Secret holds, as a value, what SOPS has encrypted.
func isSealed(object map[string]any) bool {
	u := unstructured.Unstructured{Object: object}
	secret := corev1.Secret{}
	if u.GetKind() != "Secret" || runtime.DefaultUnstructuredConverter.FromUnstructured(object, &secret) != nil {
		return false
	}
	for _, value := range secret.Data {
		if bytes.Contains(value, []byte("ENC[")) {
			return true
		}
	}
	return false
}

// kinds are the types that the controllers themselves read their objects into.
func kinds(api, kind string) any {
	switch api + " " + kind {
	case "kustomize.toolkit.fluxcd.io/v1 Kustomization":
		return &kustomizev1.Kustomization{}
	case "helm.toolkit.fluxcd.io/v2 HelmRelease":
		return &helmv2.HelmRelease{}
	case "source.toolkit.fluxcd.io/v1 GitRepository":
		return &sourcev1.GitRepository{}
	case "source.toolkit.fluxcd.io/v1 HelmRepository":
		return &sourcev1.HelmRepository{}
	case "source.toolkit.fluxcd.io/v1 OCIRepository":
		return &sourcev1.OCIRepository{}
	case "source.toolkit.fluxcd.io/v1 HelmChart":
		return &sourcev1.HelmChart{}
	case "source.toolkit.fluxcd.io/v1 Bucket":
		return &sourcev1.Bucket{}
	case "notification.toolkit.fluxcd.io/v1 Receiver":
		return &notificationv1.Receiver{}
	case "notification.toolkit.fluxcd.io/v1beta3 Alert":
		return &notificationv1b3.Alert{}
	case "notification.toolkit.fluxcd.io/v1beta3 Provider":
		return &notificationv1b3.Provider{}
	}
	return nil
}

// release tells its dependencies in the words that the sorting takes.
type release struct{ *helmv2.HelmRelease }

func (r release) GetDependsOn() []meta.DependencyReference {
	references := []meta.DependencyReference{}
	for _, of := range r.HelmRelease.GetDependsOn() {
		references = append(references, meta.DependencyReference{Namespace: of.Namespace, Name: of.Name})
	}
	return references
}

func (t tree) run() (judged, error) {
	root, err := os.MkdirTemp("", "flux-tree")
	if err != nil {
		return judged{}, err
	}
	defer os.RemoveAll(root)
	if err := t.fetched(root); err != nil {
		return judged{}, err
	}
	// What variables come from may be brought by any Kustomization: the first pass finds it.
	cluster := known{objects: map[string]map[string]any{}}
	for _, object := range t.Given {
		cluster.add(object)
	}
	from := filepath.Join(root, "tree")
	_, objects := t.pass(from, cluster)
	for _, object := range objects {
		cluster.add(object)
	}
	said := judged{}
	said.Kustomizations, objects = t.pass(from, cluster)
	kustomizations, releases := []dependency.Dependent{}, []dependency.Dependent{}
	for _, object := range objects {
		u := unstructured.Unstructured{Object: object}
		typed := kinds(u.GetAPIVersion(), u.GetKind())
		if typed == nil {
			continue
		}
		text, err := json.Marshal(object)
		if err != nil {
			return said, err
		}
		strict, err := kjson.UnmarshalStrict(text, typed)
		for _, unknown := range append(strict, err) {
			if unknown != nil {
				said.Fields = append(said.Fields, named(object)+": "+unknown.Error())
			}
		}
		switch own := typed.(type) {
		case *kustomizev1.Kustomization:
			kustomizations = append(kustomizations, own)
		case *helmv2.HelmRelease:
			releases = append(releases, release{own})
		}
	}
	for _, all := range [][]dependency.Dependent{kustomizations, releases} {
		if _, err := dependency.Sort(all); err != nil {
			said.Circles = append(said.Circles, err.Error())
		}
	}
	return said, nil
}
