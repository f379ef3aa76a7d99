package main

import (
	"context"
	"fmt"
	"io"

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

// run runs the command that args names, and returns the exit status of the
// program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
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
