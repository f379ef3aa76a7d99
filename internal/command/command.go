// Package command is the program dlock without its drivers. A main package imports
// the drivers that its program can use, and calls [Main].
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/dlock-go/dlock/internal/demo"
	"github.com/dlock-go/dlock/internal/secret"
)

// Exit statuses.
const (
	failedStatus = 1
	usageStatus  = 2 // the command line is not valid
)

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

// Main runs the command that the arguments of the process name, and exits with its
// status. A signal that asks the process to end, or an output that cannot be
// written, ends the command in good order. The second interrupt ends the process at
// once.
//
// Other signals end the process only in good order, because programs send them more
// than once: timeout does, and so does a shell whose terminal is closed.
func Main() {
	signal.Ignore(syscall.SIGPIPE) // stdout notices that its reader has ended
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	ctx, _ = signal.NotifyContext(ctx, endings()...)
	ctx, end := context.WithCancel(ctx)
	stdout := &output{file: os.Stdout, end: end}
	status := Run(ctx, os.Args[1:], stdout, os.Stderr)
	if err := stdout.failure(); err != nil {
		status = max(status, failedStatus)
		if !errors.Is(err, syscall.EPIPE) { // a reader that has ended wants no more output
			fmt.Fprintf(os.Stderr, "dlock: %v\n", err)
		}
	}
	os.Exit(status)
}

// endings returns the signals other than an interrupt that end the program. The
// program nohup makes its command ignore that the terminal is closed.
func endings() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{syscall.SIGTERM}
	}
	return []os.Signal{syscall.SIGTERM, syscall.SIGHUP}
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
