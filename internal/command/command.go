// Package command is the program dlock without its drivers. A main package imports
// the drivers that its program can use, and calls [Main].
package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/dlock-go/dlock/internal/demo"
	"github.com/dlock-go/dlock/internal/secret"
)

// usageStatus is the exit status for a command line that is not valid.
const usageStatus = 2

// command is a command of the program, such as "demo" in "dlock demo". Its
// function main gets the arguments after the command's name, stops when ctx
// ends, and returns the exit status.
type command struct {
	name, summary string
	main          func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

var commands = []command{
	{"demo", "let workers contend for one lock, and check that it keeps its rules", demo.Main},
}

// Main runs the command that the arguments of the process name, and exits with
// its status. The first interrupt ends the command in good order, and the second
// one ends the process at once.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Run runs the command that args names, and returns the exit status of the
// program: 2 for a command line that is not valid, and otherwise the status of the
// command. When ctx ends, the command stops.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return usageStatus
	}
	switch name := args[0]; name {
	case "help", "-h", "-help", "--help":
		return help(ctx, args[1:], stdout, stderr)
	default:
		if c := find(name); c != nil {
			return c.main(ctx, args[1:], stdout, stderr)
		}
		fmt.Fprintf(stderr, "dlock: unknown command %s\n\n", secret.Hide(fmt.Sprintf("%q", name), args))
		usage(stderr)
		return usageStatus
	}
}

// help runs "dlock help [command]".
func help(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stdout)
		return 0
	}
	if c := find(args[0]); c != nil && len(args) == 1 {
		return c.main(ctx, []string{"-h"}, stdout, stderr)
	}
	fmt.Fprintf(stderr, "dlock: no help on %s\n\n", secret.Hide(fmt.Sprintf("%q", args), args))
	usage(stderr)
	return usageStatus
}

func find(name string) *command {
	for i := range commands {
		if commands[i].name == name {
			return &commands[i]
		}
	}
	return nil
}

func usage(w io.Writer) {
	fmt.Fprint(w, "dlock: distributed read-write locks\n\nUsage: dlock <command> [flags]\n\nCommands:\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-6s  %s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, "  %-6s  %s\n\n", "help", "show this text; dlock help <command> shows the flags of a command")
	fmt.Fprint(w, "Try: dlock demo\n")
}
