package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// charts is the directory of the pictures and the raw figures, beside the page.
const charts = "benchmarks"

// publish writes the generated parts of the page, and the charts.
func publish(found *results, docs string) error {
	r := newReport(found)
	path := filepath.Join(docs, "benchmarks.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := fill(string(page), r.regions())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Join(docs, charts), 0o755); err != nil {
		return err
	}
	for name, c := range r.charts() {
		if err := os.WriteFile(filepath.Join(docs, charts, name+".svg"), []byte(c.svg()), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func marks(name string) (begin, end string) {
	return "<!-- generated: " + name + " -->\n", "<!-- end: " + name + " -->\n"
}

// fill replaces what stands between the marks of each region. The page has to have all of them;
// what is outside is written by hand and stays.
func fill(page string, regions map[string]string) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(regions)) {
		begin, end := marks(name)
		before, rest, found := strings.Cut(page, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			return "", fmt.Errorf("no place for the part %q", name)
		}
		page = before + begin + regions[name] + end + after
	}
	return page, nil
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
