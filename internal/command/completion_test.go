package command

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/memdriver"
)

func printed(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	require.Zero(t, Run(t.Context(), args, &stdout, &stderr), "%q: %s", args, &stderr)
	require.Empty(t, stderr.String())
	return stdout.String()
}

func script(t *testing.T, shell string) string {
	name := filepath.Join(t.TempDir(), "_dlock")
	require.NoError(t, os.WriteFile(name, []byte(printed(t, "completion", shell)), 0o600))
	return name
}

func in(t *testing.T, shell string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("%s is not installed", shell)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "ZDOTDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func TestEveryFlagInTheHelpIsInTheCompletionsAndTheManual(t *testing.T) {
	man := printed(t, "man")
	flags := 0
	for _, c := range commands {
		help := printed(t, c.name, "-h")
		assert.Contains(t, help, "Usage: dlock "+c.name)
		assert.Contains(t, man, "\n.SS "+c.name+"\n")
		for _, m := range regexp.MustCompile(`(?m)^ *-(\w[\w-]*)(?: \w+)?$`).FindAllStringSubmatch(help, -1) {
			flags++
			assert.Regexp(t, `(?m)^\t`+c.name+`\) flags='(.* )?-`+m[1]+`[ ']`, printed(t, "completion", "bash"))
			assert.Contains(t, printed(t, "completion", "zsh"), "'-"+m[1]+"[")
			assert.Regexp(t, `(?m)seen_subcommand_from `+c.name+`' -o `+m[1]+` `, printed(t, "completion", "fish"))
			assert.Contains(t, man, "\n.BI \\-"+strings.ReplaceAll(m[1], "-", `\-`)+" ")
		}
	}
	assert.Greater(t, flags, 10)
}

func TestAHelpTextIsTakenApart(t *testing.T) {
	var help bytes.Buffer
	help.WriteString("Usage: dlock try [flags] name\n\nTries.\n\n  example  -x is no flag here\n\nFlags\n\n")
	f := flag.NewFlagSet("try", flag.ContinueOnError)
	f.SetOutput(&help)
	f.Bool("q", false, "be quiet")
	f.Bool("wait", false, "wait\nfor the lock")
	f.String("config", "", "a `file` with settings")
	f.PrintDefaults()
	m := readManual(command{name: "try"}, help.String())
	assert.Equal(t, "try [flags] name", m.synopsis)
	assert.Equal(t, "Tries.\n\n  example  -x is no flag here", m.text)
	assert.Equal(t, []option{{"config", "file", "a file with settings"}, {"q", "", "be quiet"}, {"wait", "", "wait\nfor the lock"}}, m.flags)
}

func TestCompletionInBash(t *testing.T) {
	file := script(t, "bash")
	for line, want := range map[string]string{
		"dlock dem":              "demo",
		"dlock ":                 strings.Join(names(), " ") + " help",
		"dlock help ver":         "version",
		"dlock completion ":      "bash zsh fish",
		"dlock demo -d":          "-driver -dsn",
		"dlock demo -driver ":    strings.Join(dlock.Drivers(), " "),
		"dlock demo -driver me":  "mem",
		"dlock demo -svg -":      "", // no flags: "-" may begin a file name
		"dlock demo x":           "",
		"dlock unknown -":        "",
		"dlock version -":        "",
		"dlock demo -svg a -hol": "-hold",
	} {
		const complete = `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _dlock; echo "${COMPREPLY[*]}"; complete -p dlock`
		out := in(t, "bash", append([]string{"-c", complete, "bash", file}, strings.Split(line, " ")...)...)
		assert.Equal(t, want+"\ncomplete -o default -F _dlock dlock\n", out, "%q", line)
	}
}

func names() (all []string) {
	for _, c := range commands {
		all = append(all, c.name)
	}
	return all
}

func TestCompletionInFish(t *testing.T) {
	file := script(t, "fish")
	for line, want := range map[string][]string{
		"dlock dem":           {"demo"},
		"dlock demo -d":       {"-driver", "-dsn"},
		"dlock demo -driver ": dlock.Drivers(),
		"dlock completion ":   {"bash", "fish", "zsh"},
		"dlock help ver":      {"version"},
	} {
		var found []string
		for l := range strings.Lines(in(t, "fish", "--no-config", "-c", `source $argv[1]; complete -C $argv[2]`, file, line)) {
			word, _, _ := strings.Cut(strings.TrimSpace(l), "\t")
			found = append(found, word)
		}
		assert.Equal(t, want, found, "%q", line)
	}
}

// Zsh completes only in a terminal, so this test replaces functions that need
// one.
func TestCompletionInZsh(t *testing.T) {
	file := script(t, "zsh")
	in(t, "zsh", "-n", file)
	out := in(t, "zsh", "-fc", `autoload -U compinit; compinit -u -D; source $1; echo $_comps[dlock]
_arguments() { print -rl -- "$@" }; _describe() { print -r -- $commands }; _values() { print -r -- "$@" }
words=(dlock demo -); CURRENT=3; _dlock; words=(dlock v); CURRENT=2; _dlock; words=(dlock completion ''); CURRENT=3; _dlock`, "zsh", file)
	lines := strings.Split(out, "\n")
	assert.Equal(t, "_dlock", lines[0])
	assert.Contains(t, out, "]:string:("+strings.Join(dlock.Drivers(), " ")+")\n")
	assert.Contains(t, lines, "-svg[write the time line as a picture to this file, too]:file:_files")
	assert.Contains(t, out, "version:print the version")
	assert.Contains(t, lines, "shell bash zsh fish")
}

func TestTheManualIsValid(t *testing.T) {
	name := filepath.Join(t.TempDir(), "dlock.1")
	require.NoError(t, os.WriteFile(name, []byte(printed(t, "man")), 0o600))
	assert.Empty(t, in(t, "groff", "-man", "-ww", "-z", name))
	page := in(t, "groff", "-man", "-Tascii", "-P-cbou", name)
	for _, text := range []string{"dlock - distributed read-write locks", "dlock demo [flags]", "-svg file", "EXIT STATUS"} {
		assert.Contains(t, page, text)
	}
}

func TestTextInTheManualIsNoRequest(t *testing.T) {
	assert.Equal(t, "\\&.so /etc/passwd\n\\&'x \\e\\-y", roff(".so /etc/passwd\n'x \\-y"))
}

func TestVersionNamesTheDrivers(t *testing.T) {
	out := printed(t, "version")
	assert.Equal(t, out, printed(t, "--version"))
	assert.Regexp(t, `^dlock \S.*\n`, out)
	assert.Regexp(t, `(?m)^built with: go1\.\S+ for \w+/\w+$`, out)
	assert.Contains(t, out, "\ndrivers: "+strings.Join(dlock.Drivers(), ", ")+"\n")
}

func TestACommandThatPrintsTakesNoOtherArgument(t *testing.T) {
	for _, args := range [][]string{{"version", "x"}, {"man", "-x"}, {"completion"}, {"completion", "tcsh"}, {"completion", "bash", "zsh"}} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, usageStatus, Run(context.Background(), args, &stdout, &stderr), "%q", args)
		assert.Contains(t, stderr.String(), "dlock "+args[0]+": ")
		assert.Empty(t, stdout.String())
	}
}
