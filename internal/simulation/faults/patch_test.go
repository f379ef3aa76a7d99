package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// patch is one fault.
type patch struct {
	path string // of the patch file
	name string

	fault string // what the lock does wrong
	seeds []int  // the first seeds with which the simulation detects the fault
	none  int    // number of seeds tried if none detects the fault, or 0
	says  string // what the simulation reports with the first seed
	test  string // name of a test that detects the fault, if any
	pkg   string // package of the test
	files []fileDiff
}

type fileDiff struct {
	path  string // relative to the root of the module, with slashes
	hunks []hunk
}

// hunk replaces the lines in old with those in new. Both include context lines.
type hunk struct {
	lines    []string // all lines, including the first character: ' ', '-' or '+'
	old, new []string
}

func readPatches(dir string) ([]*patch, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []*patch
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		p, err := parsePatch(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		p.path, p.name = path, strings.TrimSuffix(filepath.Base(path), ".patch")
		all = append(all, p)
	}
	return all, nil
}

func parsePatch(text string) (*patch, error) {
	p := &patch{}
	header, diff, ok := strings.Cut(text, "\ndiff ")
	if !ok {
		return nil, fmt.Errorf("no diff")
	}
	if err := p.parseHeader(header); err != nil {
		return nil, err
	}
	return p, p.parseDiff("diff " + diff)
}

func (p *patch) parseHeader(header string) error {
	for line := range strings.Lines(regexp.MustCompile(`\n[ \t]+`).ReplaceAllString(header, " ")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "", "Run":
		case "Fault":
			p.fault = value
		case "Says":
			p.says = value
		case "Test":
			p.test, p.pkg, _ = strings.Cut(value, " ")
		case "Seeds":
			err = p.parseSeeds(value)
		default:
			err = fmt.Errorf("header with an unknown line: %s", line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *patch) parseSeeds(value string) (err error) {
	if limit, none := strings.CutPrefix(value, "none of "); none {
		p.none, err = strconv.Atoi(limit)
		return err
	}
	for field := range strings.SplitSeq(value, ",") {
		seed, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			return err
		}
		p.seeds = append(p.seeds, seed)
	}
	return nil
}

func (p *patch) parseDiff(diff string) error {
	var file *fileDiff
	var h *hunk
	for line := range strings.SplitSeq(strings.TrimSuffix(diff, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "index "), strings.HasPrefix(line, "--- a/"):
			h = nil
		case strings.HasPrefix(line, "+++ b/"):
			p.files = append(p.files, fileDiff{path: strings.TrimPrefix(line, "+++ b/")})
			file = &p.files[len(p.files)-1]
		case strings.HasPrefix(line, "@@ ") && file != nil:
			file.hunks = append(file.hunks, hunk{})
			h = &file.hunks[len(file.hunks)-1]
		case h == nil || line != "" && !strings.ContainsRune(" -+", rune(line[0])):
			return fmt.Errorf("diff with a line that is not understood: %q", line)
		default:
			h.add(line)
		}
	}
	return nil
}

func (h *hunk) add(line string) {
	// Editors strip the leading space of an empty context line.
	if line == "" {
		line = " "
	}
	h.lines = append(h.lines, line)
	if line[0] != '+' {
		h.old = append(h.old, line[1:])
	}
	if line[0] != '-' {
		h.new = append(h.new, line[1:])
	}
}

func (p *patch) apply(root string) (map[string]string, error) {
	files := make(map[string]string)
	for _, f := range p.files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.path)))
		if err != nil {
			return nil, p.stale(f.path, err.Error())
		}
		lines := strings.Split(string(text), "\n")
		for _, h := range f.hunks {
			at, h, err := h.find(lines)
			if err != nil {
				return nil, p.stale(f.path, err.Error())
			}
			lines = slices.Replace(lines, at, at+len(h.old), h.new...)
		}
		files[f.path] = strings.Join(lines, "\n")
	}
	return files, nil
}

// find returns the index of the only place in lines where h applies. If the
// context has changed, it tries the hunk without context.
func (h hunk) find(lines []string) (at int, fitting hunk, err error) {
	found := 0
	for _, fitting := range []hunk{h, h.core()} {
		found = 0
		for i := range len(lines) - len(fitting.old) + 1 {
			if slices.Equal(lines[i:i+len(fitting.old)], fitting.old) {
				at = i
				found++
			}
		}
		if found == 1 && len(fitting.old) > 0 {
			return at, fitting, nil
		}
	}
	return 0, hunk{}, fmt.Errorf("these lines are there %d times:\n%s", found, strings.Join(h.old, "\n"))
}

// core returns the hunk without its context lines.
func (h hunk) core() hunk {
	changes := func(line string) bool { return line[0] != ' ' }
	first := slices.IndexFunc(h.lines, changes)
	last := len(h.lines)
	for last > first && !changes(h.lines[last-1]) {
		last--
	}
	var core hunk
	for _, line := range h.lines[max(first, 0):last] {
		core.add(line)
	}
	return core
}

// stale returns an error which says that the patch no longer applies, and why.
func (p *patch) stale(file, why string) error {
	return fmt.Errorf("%s no longer applies, because the code has changed. Write it anew, for the code as it is now:\n"+
		"the fault is that %s.\nMissing in %s: %s", filepath.Base(p.path), p.fault, file, why)
}

// text formats the patch, with line numbers that fit the current files below
// root.
func (p *patch) text(root string) (string, error) {
	var b strings.Builder
	b.WriteString(fold("Fault: " + p.fault))
	if len(p.seeds) > 0 {
		fmt.Fprintf(&b, "Seeds: %s\n", strings.Trim(strings.ReplaceAll(fmt.Sprint(p.seeds), " ", ", "), "[]"))
		b.WriteString(fold("Says: " + p.says))
	} else {
		fmt.Fprintf(&b, "Seeds: none of %d\n", p.none)
	}
	if p.test != "" {
		fmt.Fprintf(&b, "Test: %s %s\n", p.test, p.pkg)
	}
	fmt.Fprintf(&b, "Run: go test ./internal/simulation/faults -put -run=TestFaults/%s\n\n", p.name)
	for _, f := range p.files {
		if err := f.write(&b, root); err != nil {
			return "", p.stale(f.path, err.Error())
		}
	}
	return b.String(), nil
}

func (f *fileDiff) write(b *strings.Builder, root string) error {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.path)))
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "diff --git a/%s b/%s\n--- a/%s\n+++ b/%s\n", f.path, f.path, f.path, f.path)
	lines, shift := strings.Split(string(text), "\n"), 0
	for _, h := range f.hunks {
		at, h, err := h.find(lines)
		if err != nil {
			return err
		}
		// Give a hunk that was found without its context one line of new
		// context on each side.
		if h.lines[0][0] != ' ' {
			end := at + len(h.old)
			around := hunk{}
			for _, line := range slices.Concat([]string{" " + lines[at-1]}, h.lines, []string{" " + lines[end]}) {
				around.add(line)
			}
			at, h = at-1, around
		}
		fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n%s\n", at+1, len(h.old), at+1+shift, len(h.new), strings.Join(h.lines, "\n"))
		shift += len(h.new) - len(h.old)
	}
	return nil
}

// fold wraps a line of the patch header at 88 columns.
func fold(line string) string {
	const width = 88
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(line) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteString("\n ")
			column = 1
			fallthrough
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String() + "\n"
}
