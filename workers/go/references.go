package popstream

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// References between operations: `@<fetch.out::/size?fallback>`. A string that is one whole token
// becomes the node it points to; a token inside a longer text is substituted as text. Of several
// `@` before a `<`, each two stand for one.

const outputSuffix = ".out"

var (
	mark  = regexp.MustCompile(`@+<`)
	inner = regexp.MustCompile(`^[^<>]+>`)
	index = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})$`)
)

type reference struct {
	name, pointer, fallback string
	hasFallback             bool
	token                   string
}

// piece of a text: a reference, or else literal text.
type piece struct {
	literal   string
	reference *reference
}

func parseReference(text string) *reference {
	name, path, _ := strings.Cut(text, "::")
	path, fallback, hasFallback := strings.Cut(path, "?")
	switch {
	case path == "/":
		path = ""
	case path != "" && !strings.HasPrefix(path, "/"):
		path = "/" + path
	}
	return &reference{strings.TrimSpace(name), path, fallback, hasFallback, "@<" + text + ">"}
}

func pieces(text string) (found []piece) {
	literal := ""
	for {
		at := mark.FindStringIndex(text)
		if at == nil {
			break
		}
		marks := at[1] - at[0] - 1
		rest := text[at[1]:]
		literal += text[:at[0]] + strings.Repeat("@", marks/2)
		length := 0
		if marks%2 == 1 {
			length = len(inner.FindString(rest))
		}
		if length == 0 {
			literal += strings.Repeat("@", marks%2) + "<"
		} else {
			if literal != "" {
				found = append(found, piece{literal: literal})
			}
			found = append(found, piece{reference: parseReference(rest[:length-1])})
			literal = ""
		}
		text = rest[length:]
	}
	if literal+text != "" {
		found = append(found, piece{literal: literal + text})
	}
	return found
}

// referredOperations calls back with the operation of each reference to an output in a JSON value.
func referredOperations(value any, found func(string)) {
	switch value := value.(type) {
	case string:
		for _, one := range pieces(value) {
			if one.reference == nil {
				continue
			}
			if operation, ok := strings.CutSuffix(one.reference.name, outputSuffix); ok {
				found(operation)
			}
		}
	case []any:
		for _, item := range value {
			referredOperations(item, found)
		}
	case map[string]any:
		for _, item := range value {
			referredOperations(item, found)
		}
	}
}

// resolve replaces every reference in a JSON value, which stays as it was.
func resolve(value any, names map[string]any) (any, error) {
	switch value := value.(type) {
	case string:
		return resolveText(value, names)
	case []any:
		resolved := make([]any, len(value))
		for i, item := range value {
			var err error
			if resolved[i], err = resolve(item, names); err != nil {
				return nil, err
			}
		}
		return resolved, nil
	case map[string]any:
		resolved := make(map[string]any, len(value))
		for key, item := range value {
			var err error
			if resolved[key], err = resolve(item, names); err != nil {
				return nil, err
			}
		}
		return resolved, nil
	default:
		return value, nil
	}
}

func resolveText(text string, names map[string]any) (any, error) {
	parts := pieces(text)
	if len(parts) == 1 && parts[0].reference != nil {
		return parts[0].reference.lookUp(names)
	}
	var joined strings.Builder
	for _, one := range parts {
		if one.reference == nil {
			joined.WriteString(one.literal)
			continue
		}
		node, err := one.reference.lookUp(names)
		if err != nil {
			return nil, err
		}
		switch node := node.(type) {
		case string:
			joined.WriteString(node)
		case []any, map[string]any:
			return nil, fmt.Errorf("%s stands inside a text but points to an object or a list", one.reference.token)
		default:
			encoded, err := json.Marshal(node)
			if err != nil {
				return nil, err
			}
			joined.Write(encoded)
		}
	}
	return joined.String(), nil
}

func (r *reference) lookUp(names map[string]any) (any, error) {
	document, known := names[r.name]
	if !known {
		return nil, fmt.Errorf("@<%s> names nothing known here", r.name)
	}
	node, found := walk(document, r.pointer)
	switch {
	case found:
		return node, nil
	case r.hasFallback && r.fallback != "":
		return r.fallback, nil
	case r.hasFallback:
		return nil, nil
	}
	return nil, fmt.Errorf("@<%s> has nothing at %q", r.name, r.pointer)
}

// walk follows an RFC 6901 pointer.
func walk(node any, pointer string) (any, bool) {
	if pointer == "" {
		return node, true
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, part := range strings.Split(pointer, "/")[1:] {
		switch known := node.(type) {
		case map[string]any:
			item, found := known[unescape.Replace(part)]
			if !found {
				return nil, false
			}
			node = item
		case []any:
			at, err := strconv.Atoi(part)
			if err != nil || !index.MatchString(part) || at >= len(known) {
				return nil, false
			}
			node = known[at]
		default:
			return nil, false
		}
	}
	return node, true
}
