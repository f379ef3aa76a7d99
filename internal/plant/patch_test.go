package plant

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// patch is one fault: see the package comment.
type patch struct {
	name             string
	fault, says, kit string
	test, dir        string
	seeds            []string
	quick            bool
	changes          []change
}

// change replaces a text, which must occur once in the file.
type change struct{ file, old, new string }

func readPatches() (all []*patch, err error) {
	paths, err := filepath.Glob("faults/*.patch")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		p := &patch{name: strings.TrimSuffix(filepath.Base(path), ".patch")}
		if err := p.parse(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, p)
	}
	return all, err
}

var continued = regexp.MustCompile(`\n[ \t]+`)

func (p *patch) parse(text string) error {
	header, diff, _ := strings.Cut(text, "\n\n")
	for line := range strings.Lines(continued.ReplaceAllString(header, " ")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "Fault":
			p.fault = value
		case "Says":
			p.says = value
		case "Test":
			p.test, p.dir, _ = strings.Cut(value, " ")
		case "Seeds":
			p.seeds = strings.Split(value, ", ")
		case "Kit":
			p.kit = value
		case "Quick":
			p.quick = value == "yes"
		default:
			return fmt.Errorf("header with an unknown line: %s", line)
		}
	}
	switch {
	case p.fault == "":
		return fmt.Errorf("no line says what the fault is")
	case (p.test == "") == (p.seeds == nil):
		return fmt.Errorf("either a test or seeds must see the fault")
	}
	return p.parseDiff(diff)
}

func (p *patch) parseDiff(diff string) error {
	file, hunk := "", (*change)(nil)
	for line := range strings.Lines(diff) {
		kind, rest := line[:1], line[1:]
		switch {
		case strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "index "), strings.HasPrefix(line, "--- a/"):
			hunk = nil
		case strings.HasPrefix(line, "+++ b/"):
			file = strings.TrimSpace(strings.TrimPrefix(line, "+++ b/"))
		case strings.HasPrefix(line, "@@"):
			p.changes = append(p.changes, change{file: file})
			hunk = &p.changes[len(p.changes)-1]
		case hunk == nil:
			return fmt.Errorf("diff with a line that is not understood: %q", line)
		case kind == "-":
			hunk.old += rest
		case kind == "+":
			hunk.new += rest
		default:
			if kind == "\n" { // an empty context line, stripped by an editor
				rest = "\n"
			}
			hunk.old, hunk.new = hunk.old+rest, hunk.new+rest
		}
	}
	if len(p.changes) == 0 {
		return fmt.Errorf("no diff")
	}
	return nil
}

func (p *patch) apply(root string) (map[string]string, error) {
	files := make(map[string]string)
	for _, c := range p.changes {
		text, changed := files[c.file]
		if !changed {
			bytes, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				return nil, err
			}
			text = string(bytes)
		}
		for _, c := range []change{c, c.core()} {
			if strings.Count("\n"+text, "\n"+c.old) == 1 {
				files[c.file] = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+c.old, "\n"+c.new, 1), "\n")
				break
			}
		}
		if files[c.file] == text || files[c.file] == "" {
			return nil, fmt.Errorf("%s no longer applies, because the code has changed. Write it anew, for the code as it is now:\n"+
				"the fault is that %s.\nMissing in %s, or there more than once:\n%s", p.name, p.fault, c.file, c.old)
		}
	}
	return files, nil
}

// core returns the change without its context lines.
func (c change) core() change {
	for first, _, more := strings.Cut(c.old, "\n"); more && strings.HasPrefix(c.new, first+"\n"); first, _, more = strings.Cut(c.old, "\n") {
		c.old, c.new = c.old[len(first)+1:], c.new[len(first)+1:]
	}
	for last := lastLine(c.old); last != "" && c.old != last && lastLine(c.new) == last; last = lastLine(c.old) {
		c.old, c.new = strings.TrimSuffix(c.old, last), strings.TrimSuffix(c.new, last)
	}
	return c
}

func lastLine(text string) string {
	return text[strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1:]
}
