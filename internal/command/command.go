// Package command implements the program dlock, except for its drivers. A main
// package imports the drivers it wants to support and calls [Main].
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

// Exit statuses.
const (
	failedStatus = 1
	usageStatus  = 2 // invalid command line
)

// command is a subcommand. Its main function gets the arguments after the name
// and returns the exit status.
type command struct {
	name, summary string
	main          func(ctx context.Context, args []string, stdout, stderr io.Writer) int
	ownSignals    bool // main handles signals itself
}

var commands = []command{
	{"run", "run a command while it holds a lock", runMain, true},
	{"queue", "show who holds a lock and who waits for it", queue, false},
	{"last", "tell when a job of run -once-per ran last", last, false},
	{"ls", "list the locks that somebody holds or waits for", ls, false},
	{"top", "show all locks at a glance, and again every two seconds", top, false},
	{"serve", "show the same as a page for the browser", serve, false},
	{"release", "take a lock from a holder that is stuck, or remove a waiter", release, false},
	{"doctor", "check the store, and say what to do", doctor, false},
	{"demo", "let workers contend for one lock, and check that it keeps its rules", demo.Main, false},
}

// Main runs the command named by os.Args and exits with its status. A
// termination signal or a failed write to standard output stops the command
// gracefully. A second interrupt kills the process. Other signals do not,
// because some programs send them twice. Commands with ownSignals handle
// signals themselves.
func Main() {
	if len(os.Args) > 1 {
		if c := find(os.Args[1]); c != nil && c.ownSignals {
			stdout := &output{file: os.Stdout, end: func() {}}
			os.Exit(stdout.status(c.main(context.Background(), os.Args[2:], stdout, os.Stderr)))
		}
	}
	signal.Ignore(syscall.SIGPIPE) // so that writes to stdout return EPIPE instead
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	ctx, _ = signal.NotifyContext(ctx, endings()...)
	ctx, end := context.WithCancel(ctx)
	stdout := &output{file: os.Stdout, end: end}
	os.Exit(stdout.status(Run(ctx, os.Args[1:], stdout, os.Stderr)))
}

// endings returns the signals, besides an interrupt, that end the program.
// Under nohup, which ignores SIGHUP, the program must go on ignoring it.
func endings() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{syscall.SIGTERM}
	}
	return []os.Signal{syscall.SIGTERM, syscall.SIGHUP}
}

// Run runs the command named by args and returns its exit status, or 2 if the
// command line is invalid. The command stops when ctx is done.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return usageStatus
	}
	switch name := args[0]; name {
	case "help", "-h", "-help", "--help":
		return help(ctx, args[1:], stdout, stderr)
	case "-version", "--version":
		return find("version").main(ctx, args[1:], stdout, stderr)
	default:
		if c := find(name); c != nil {
			return c.main(ctx, args[1:], stdout, stderr)
		}
		fmt.Fprintf(stderr, "dlock: unknown command %s\n\n", secret.Hide(fmt.Sprintf("%q", name), args))
		usage(stderr)
		return usageStatus
	}
}

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
		fmt.Fprintf(w, "  %-10s  %s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, "  %-10s  %s\n\n", "help", "show this text; dlock help <command> shows the flags of a command")
	fmt.Fprint(w, "Try: dlock demo\n")
}
