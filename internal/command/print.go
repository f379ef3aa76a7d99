package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/secret"
)

// These commands are added in init, because some of them read the variable
// commands, which would be an initialization cycle.
func init() {
	commands = append(commands,
		printer("completion", "print a script that completes commands and flags in a shell", completionHelp, shells, writeCompletion),
		printer("man", "print the manual page, for man -l", "Prints the manual page of dlock: dlock man | man -l -\n", nil, func(w io.Writer, _ string) { writeManual(w) }),
		printer("version", "print the version of this program, and its drivers", "Prints the version, the commit, the version of Go, and the drivers.\n", nil, func(w io.Writer, _ string) { writeVersion(w) }))
}

// printer returns a command that only prints and has no flags. If choices is
// not nil, the command takes one of them as its argument.
func printer(name, summary, help string, choices []string, print func(w io.Writer, choice string)) command {
	usage := name
	if choices != nil {
		usage += " " + strings.Join(choices, "|")
	}
	return command{name: name, summary: summary, main: func(_ context.Context, args []string, stdout, stderr io.Writer) int {
		f := flag.NewFlagSet("dlock "+name, flag.ContinueOnError)
		f.SetOutput(io.Discard)
		err := f.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprintf(stdout, "Usage: dlock %s\n\n%s", usage, help)
			return 0
		case err == nil && choices == nil && f.NArg() > 0:
			err = fmt.Errorf("unexpected argument %q", f.Arg(0))
		case err == nil && choices != nil && (f.NArg() != 1 || !slices.Contains(choices, f.Arg(0))):
			err = fmt.Errorf("name one of: %s", strings.Join(choices, ", "))
		}
		if err != nil {
			fmt.Fprintf(stderr, "dlock %s: %s\nRun 'dlock %[1]s -h' for help\n", name, secret.Hide(err.Error(), args))
			return usageStatus
		}
		print(stdout, f.Arg(0))
		return 0
	}}
}

const module = "github.com/dlock-go/dlock"

func writeVersion(w io.Writer) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	fmt.Fprintf(w, "dlock %s\n", cmp.Or(info.Main.Version, "of unknown version"))
	for _, dep := range info.Deps { // the main module may not be dlock
		if dep.Path == module && dep.Version != "" {
			fmt.Fprintf(w, "library: %s\n", dep.Version)
		}
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if commit := settings["vcs.revision"]; commit != "" {
		if settings["vcs.modified"] == "true" {
			commit += ", modified"
		}
		fmt.Fprintf(w, "commit: %s\n", commit)
	}
	fmt.Fprintf(w, "built with: %s for %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(w, "drivers: %s\n", strings.Join(dlock.Drivers(), ", "))
}
