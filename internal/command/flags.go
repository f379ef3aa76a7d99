package command

import (
	"bytes"
	"context"
	"regexp"
	"strings"
)

// manual is the text that a command prints with -h, split into parts. The man
// page and the completion scripts are generated from it.
type manual struct {
	command
	synopsis string // without "dlock"
	text     string // the text before the list of flags
	flags    []option
}

// option is a flag as formatted by flag.PrintDefaults.
type option struct {
	name, value string // value is empty for a boolean flag
	usage       string
}

func (o option) brief() string {
	line, _, _ := strings.Cut(o.usage, "\n")
	return line
}

var (
	flagLine   = regexp.MustCompile(`^  -([^\s-]\S*)(?: (\S+))?(?:\t(.*))?$`)
	flagsTitle = regexp.MustCompile(`^(?i:flags):?$`)
)

func readManuals() (all []manual) {
	for _, c := range commands {
		var help bytes.Buffer
		c.main(context.Background(), []string{"-h"}, &help, &help)
		all = append(all, readManual(c, help.String()))
	}
	return all
}

func readManual(c command, help string) manual {
	m := manual{command: c, synopsis: c.name}
	var text []string
	inFlag := false
	for line := range strings.Lines(help) {
		line = strings.TrimSuffix(line, "\n")
		usage, more := strings.CutPrefix(line, "    \t")
		found := flagLine.FindStringSubmatch(line)
		switch {
		case found != nil:
			m.flags = append(m.flags, option{found[1], found[2], found[3]})
		case inFlag && more:
			last := &m.flags[len(m.flags)-1]
			last.usage = strings.TrimPrefix(last.usage+"\n"+usage, "\n")
		case strings.HasPrefix(line, "Usage: dlock "):
			m.synopsis = strings.TrimPrefix(line, "Usage: dlock ")
		case !flagsTitle.MatchString(line):
			text = append(text, line)
		}
		inFlag = found != nil || inFlag && more
	}
	m.text = strings.TrimSpace(strings.Join(text, "\n"))
	return m
}
