package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pageDir is the directory of the page.
const pageDir = "../docs/use"

// resultsFile returns the path of the results of a setup. docs is the directory of the
// page.
func resultsFile(docs, setup string) string {
	return filepath.Join(docs, "benchmarks", "results-"+setup+".json")
}

// publish writes the generated parts of the page from the saved
// results of all setups.
func publish(docs string) error {
	path := filepath.Join(docs, "benchmarks.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(page)
	for _, s := range setups() {
		found, err := load(resultsFile(docs, s.name))
		if errors.Is(err, fs.ErrNotExist) {
			found, err = newResults(s.name, settings{}), nil
		}
		if err != nil {
			return err
		}
		if text, err = fill(text, newReport(found).regions()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// marks returns the lines before and after the generated part of the page with this
// name.
func marks(name string) (begin, end string) {
	return "<!-- generated: " + name + " -->\n", "<!-- end: " + name + " -->\n"
}

// fill replaces the text between the marks of each region. It leaves the other text,
// which is written by hand, as it is. It returns an error if a region has no marks.
func fill(page string, regions map[string]string) (string, error) {
	for _, name := range keys(regions) {
		begin, end := marks(name)
		before, rest, found := strings.Cut(page, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			return "", fmt.Errorf("the page has no marks for the part %q", name)
		}
		page = before + begin + regions[name] + end + after
	}
	return page, nil
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
