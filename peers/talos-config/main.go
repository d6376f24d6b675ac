// Command talos-config judges machine configurations with the vendor's own
// library: it validates them, merges patches into them, hides what is secret in
// them, and lists their fields with what decides how each is merged. It reads one JSON object on stdin and
// writes one on stdout, answers in the order of the questions; status 1 =
// malformed question.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
)

type question struct {
	Validate []struct {
		Config string
		Mode   string // metal, cloud or container
	}
	Patch  []struct{ Config, Patch string }
	Redact []string // configurations
	Kinds  []string // whose fields to list
}

type verdict struct {
	Warnings []string `json:"warnings"`
	Config   string   `json:"config,omitempty"`
	Error    string   `json:"error"`
}

type answer struct {
	Validate  []verdict         `json:"validate"`
	Patch     []verdict         `json:"patch"`
	Redact    []verdict         `json:"redact"`
	Fields    map[string]string `json:"fields"`
	Machinery string            `json:"machinery"` // the Talos tag of the machinery linked in
}

// mode is where a configuration is to run, as the validator asks for it.
type mode string

func (m mode) String() string        { return string(m) }
func (m mode) RequiresInstall() bool { return m == "metal" }
func (m mode) InContainer() bool     { return m == "container" }

func validate(text, where string) ([]string, error) {
	cfg, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		return nil, err
	}
	return cfg.Validate(mode(where), validation.WithLocal(), validation.WithStrict())
}

func patch(text, with string) (string, error) {
	p, err := configpatcher.LoadPatch([]byte(with))
	if err != nil {
		return "", err
	}
	cfg, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		return "", err
	}
	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), []configpatcher.Patch{p})
	if err != nil {
		return "", err
	}
	merged, err := out.Config()
	if err != nil {
		return "", err
	}
	encoded, err := merged.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	return string(encoded), err
}

// redact hides what the library holds to be secret.
func redact(text string) (string, error) {
	cfg, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		return "", err
	}
	encoded, err := cfg.RedactSecrets("hidden").EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	return string(encoded), err
}

func say(v *verdict, err error) {
	if err != nil {
		v.Error = err.Error()
	}
}

type merger interface{ Merge(other any) error }

var mergerType = reflect.TypeFor[merger]()

// list notes every field of a document kind and how the library merges it.
func list(kind string, fields map[string]string) error {
	text := "apiVersion: v1alpha1\nkind: " + kind + "\n"
	if kind == "v1alpha1" {
		text = "version: v1alpha1\nmachine: {}\n"
	}
	cfg, err := configloader.NewFromBytes([]byte(text), configloader.WithNoValidation())
	if err != nil {
		return err
	}
	walk(reflect.TypeOf(cfg.Documents()[0]).Elem(), kind, false, nil, fields)
	return nil
}

func walk(t reflect.Type, path string, replace bool, within []reflect.Type, fields map[string]string) {
	how := ""
	if replace {
		how = "replace "
	}
	for _, outer := range within {
		if outer == t {
			return
		}
	}
	pointer := false
	if t.Kind() == reflect.Pointer {
		t, pointer = t.Elem(), true
	}
	if reflect.PointerTo(t).Implements(mergerType) {
		fields[path] = how + "own " + t.String()
		if t.Kind() != reflect.Slice {
			return
		}
	}
	if _, scalar := reflect.PointerTo(t).MethodByName("UnmarshalText"); scalar || t.String() == "url.URL" {
		fields[path] = how + described(pointer) + "text " + t.String() + " " + t.Kind().String()
		return
	}
	if _, custom := reflect.PointerTo(t).MethodByName("UnmarshalYAML"); custom {
		fields[path] = how + described(pointer) + "custom " + t.String() + " " + t.Kind().String()
		if t.Kind() != reflect.Struct || t.NumField() > 0 && !t.Field(0).IsExported() {
			return
		}
	}
	switch t.Kind() {
	case reflect.Struct:
		if path != "" && fields[path] == "" {
			fields[path] = how + described(pointer) + "struct"
		}
		for i := range t.NumField() {
			f := t.Field(i)
			name, rest, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if name == "-" || !f.IsExported() {
				continue
			}
			below := path + "." + name
			if strings.Contains(rest, "inline") {
				below = path
			} else if name == "" {
				below = path + "." + strings.ToLower(f.Name)
			}
			walk(f.Type, below, replace || strings.Contains(f.Tag.Get("merge"), "replace"), append(within, t), fields)
		}
	case reflect.Slice:
		if fields[path] == "" {
			fields[path] = how + "list of " + t.Elem().String()
		}
		walk(t.Elem(), path+"[]", false, append(within, t), fields)
	case reflect.Map:
		if fields[path] == "" || fields[path] == "struct" {
			fields[path] = how + "map of " + t.Elem().String()
		}
		walk(t.Elem(), path+".*", false, append(within, t), fields)
	default:
		fields[path] = how + described(pointer) + t.Kind().String()
	}
}

func described(pointer bool) string {
	if pointer {
		return "pointer "
	}
	return ""
}

func run() error {
	var q question
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	in.DisallowUnknownFields()
	out.SetEscapeHTML(false)
	if err := in.Decode(&q); err != nil {
		return err
	}
	a := answer{Validate: []verdict{}, Patch: []verdict{}, Redact: []verdict{}, Fields: map[string]string{}, Machinery: gendata.VersionTag}
	for _, c := range q.Validate {
		var v verdict
		warnings, err := validate(c.Config, c.Mode)
		v.Warnings = warnings
		say(&v, err)
		a.Validate = append(a.Validate, v)
	}
	for _, c := range q.Patch {
		var v verdict
		merged, err := patch(c.Config, c.Patch)
		v.Config = merged
		say(&v, err)
		a.Patch = append(a.Patch, v)
	}
	for _, c := range q.Redact {
		var v verdict
		hidden, err := redact(c)
		v.Config = hidden
		say(&v, err)
		a.Redact = append(a.Redact, v)
	}
	for _, kind := range q.Kinds {
		if err := list(kind, a.Fields); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return out.Encode(a)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "talos-config:", err)
		os.Exit(1)
	}
}
