package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const pageDir = "../docs/use"

func resultsFile(docs, setup string) string {
	return filepath.Join(docs, "benchmarks", "results-"+setup+".json")
}

// publish updates the tables of benchmarks.md from the saved results.
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
			found, err = newResults(s.name, 0), nil
		}
		if err != nil {
			return err
		}
		if text, err = fill(text, s.name, newReport(found).overview()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func fill(page, name, text string) (string, error) {
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->\n"
	before, rest, found := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("the page has no marks for the part %q", name)
	}
	return before + begin + text + end + after, nil
}
