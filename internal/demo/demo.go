// Package demo implements "dlock demo", the classic test of a read-write lock.
// Workers contend for one lock, each with a session of its own, and on a store
// that processes can share, each in a process of its own. Writers add to a
// counter that only the lock protects. The program prints each event as it
// happens, and at the end a time line and a verdict. With a fault, it shows how
// the lock is lost, and how its token keeps a late write out.
package demo

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/secret"
)

// Exit statuses.
const (
	statusOK    = 0
	statusBad   = 1 // a rule was violated or not checked
	statusUsage = 2
)

// Main runs the demo and returns the exit status: 0 if all rules were kept, 1
// if a rule was violated or the store failed, 2 if the arguments are invalid.
// When ctx ends, the workers release their locks, and the verdict covers the
// run so far.
//
// A worker's process runs the current executable with the arguments "demo" and
// [childArgument].
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if slices.Equal(args, []string{childArgument}) {
		return runChild(ctx, os.Stdin, os.Stdout)
	}
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		writeHelp(stdout)
		return statusOK
	}
	status := statusUsage
	if err == nil {
		status, err = s.run(ctx, stdout)
	}
	if err != nil {
		// The error may repeat the password of a DSN from the environment.
		text := clean(secret.Hide(err.Error(), slices.Concat(args, []string{s.DSN})))
		if status == statusUsage {
			text += "\nRun 'dlock demo -h' for help"
		}
		fmt.Fprintf(stderr, "dlock demo: %s\n", text)
	}
	return status
}

// run runs the demo. If it returns an error, there is no verdict.
func (s *settings) run(ctx context.Context, stdout io.Writer) (status int, err error) {
	r := newRun(ctx, s, stdout)
	defer r.stop()
	r.introduce()
	if err := r.play(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted before it began: %w", err)
		}
		return statusBad, err
	}
	drawTimeline(stdout, r.attempts)
	status = judge(r, ctx.Err() != nil).write(stdout)
	if s.SVG != "" {
		if err := os.WriteFile(s.SVG, []byte(drawPicture(r)), 0o644); err != nil {
			return statusBad, fmt.Errorf("-svg: %w", err)
		}
		fmt.Fprintf(stdout, "Picture: %s\n", clean(s.SVG))
	}
	return status, nil
}

// settings are the arguments of the demo, also passed to a child process.
type settings struct {
	Driver, DSN, Lock string
	Workers           int
	Hold              time.Duration
	Fault             string // empty for none
	SVG               string // file for the picture; empty for none

	Child  int // worker number in this process, or zero
	Paused int // process that the fault pauses, or zero
}

const (
	inMemory    = "mem"
	dsnVariable = "DLOCK_DSN"
	maxWorkers  = 100
)

// The values of -fault.
const (
	faultPause = "pause"
	faultCut   = "cut"
	faultKill  = "kill"
)

// faults gives a word for what each fault does to the first worker, and the
// request by that worker that triggers the fault.
var faults = map[string]struct{ done, at string }{
	faultPause: {"paused", askPause},
	faultCut:   {"cut off", askWrite},
	faultKill:  {"killed", askWrite},
}

func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("dlock demo", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.Driver, "driver", inMemory, "kind of store: "+strings.Join(dlock.Drivers(), ", "))
	f.StringVar(&s.DSN, "dsn", "", "where the store is\n(if not given: "+dsnVariable+" of the environment; put it there if it has a\npassword, because every user of this machine can see arguments)")
	f.StringVar(&s.Lock, "lock", "demo", "`name` of the lock")
	f.IntVar(&s.Workers, "workers", 0, "how many workers take the lock (0: 10, or 2 with -fault)")
	f.DurationVar(&s.Hold, "hold", 0, "how long a worker holds the lock (0: 100ms, or 1s with -fault)")
	f.StringVar(&s.Fault, "fault", "", "show how a lock is lost, and how its token keeps a late write out:\n`fault` is pause, cut or kill")
	f.StringVar(&s.SVG, "svg", "", "write the time line as a picture to this `file`, too")
	return f
}

func parse(args []string) (*settings, error) {
	s := new(settings)
	f := s.flags()
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if s.Driver != inMemory {
		s.DSN = cmp.Or(s.DSN, os.Getenv(dsnVariable))
	}
	workers, hold := 10, 100*time.Millisecond
	if s.Fault != "" {
		workers, hold = 2, time.Second
	}
	s.Workers, s.Hold = cmp.Or(s.Workers, workers), cmp.Or(s.Hold, hold)
	if err := s.check(); err != nil {
		return s, err
	}
	return s, s.checkStore()
}

func (s *settings) check() error {
	least := 1
	if s.Fault != "" {
		least = 2
	}
	switch {
	case s.Workers < least || s.Workers > maxWorkers:
		return fmt.Errorf("-workers %d: must be from %d to %d", s.Workers, least, maxWorkers)
	case s.Hold < 0:
		return fmt.Errorf("-hold %v: must not be negative", s.Hold)
	case s.Fault != "" && faults[s.Fault].done == "":
		return fmt.Errorf("-fault %s: must be pause, cut or kill", s.Fault)
	case s.Fault == faultKill && s.Driver == inMemory:
		return errors.New("-fault kill: a store in memory dies with its process; choose another -driver")
	case s.Fault == faultPause && s.Driver != inMemory && !canPause:
		return errors.New("-fault pause: this system cannot pause a process; try -fault kill")
	}
	if err := driver.CheckQueue(s.Lock); err != nil {
		return fmt.Errorf("-lock: %w", err)
	}
	return nil
}

func (s *settings) checkStore() error {
	example := examples[s.Driver]
	switch {
	case s.Driver == inMemory && s.DSN != "":
		return errors.New("-dsn needs the -driver of its store, such as -driver zk")
	case s.DSN == "" && example.port != "":
		return fmt.Errorf("-driver %s needs -dsn, such as -dsn '%s', or %s in the environment", s.Driver, example.dsn, dsnVariable)
	case example.title != "" && !slices.Contains(dlock.Drivers(), s.Driver):
		return fmt.Errorf("this program has the drivers %s, and %s has all", strings.Join(dlock.Drivers(), ", "), allDrivers)
	}
	client, err := dlock.Open(s.Driver, s.DSN)
	if err != nil {
		return err
	}
	_ = client.Close()
	if s.Fault == faultCut && s.Driver != inMemory {
		_, _, _, err = s.splitDSN()
	}
	return err
}

// examples describe the drivers of this repository, by name, for the help text.
var examples = map[string]struct {
	title, dsn string
	port       string // default port; empty without a server
}{
	inMemory:   {title: "a store within this process"},
	"zk":       {title: "ZooKeeper", dsn: "zk://localhost:2181/locks", port: "2181"},
	"redis":    {title: "Redis", dsn: "redis://localhost:6379", port: "6379"},
	"postgres": {title: "PostgreSQL", dsn: "postgres://user@localhost/database", port: "5432"},
	"mysql":    {title: "MySQL or MariaDB", dsn: "user@tcp(localhost:3306)/database", port: "3306"},
	"sqlite":   {title: "a file that the processes of this machine share", dsn: "/tmp/locks.db"},
	"etcd":     {title: "etcd", dsn: "etcd://localhost:2379", port: "2379"},
	"nats":     {title: "NATS JetStream", dsn: "nats://localhost:4222", port: "4222"},
}

// allDrivers is the import path of a dlock program that includes every driver.
const allDrivers = "github.com/dlock-go/dlock/contrib/cmd/dlock"

const helpText = `Usage: dlock demo [flags]

Workers take one lock, shared (R) or exclusive (W), hold it for a moment and
release it. Each is a process of its own, but in memory all share one. A writer
reads a counter, waits, adds its own number and writes the sum, so that a number
is lost if two writers hold the lock together. At the end come a time line and a
verdict on four rules:

  alone    no other worker held the lock together with a writer
  counter  no number was lost, and the counter never changed under a reader
  order    first come, first served, if two workers could not share the lock
  tokens   every fencing token was above those of all earlier writers

With -fault all workers write, and the first is hit before it writes:

  pause    its process is stopped, as if its machine was suspended
  cut      its connection to the store carries nothing any more
  kill     its process is killed, while its write is still in the network

The store ends its session, and another worker gets the lock and writes. Then the
late write arrives, and the counter refuses it, because its token is smaller. In
memory a paused worker sleeps while the store hears nothing from it, and nothing
can be killed. Only a connection to a single server in -dsn can be cut.

Ctrl-C ends the run early, releases all locks, and judges the run so far.

Exit status: 0, no rule was broken; 1, a rule was broken, or the store failed, or
no worker got the lock, or the output could not be written; 2, the arguments are
not valid.

Drivers of this program

`

func writeHelp(w io.Writer) {
	fmt.Fprint(w, helpText)
	for _, name := range dlock.Drivers() {
		e := examples[name]
		fmt.Fprintf(w, "  %-9s %s\n", name, e.title)
		if e.dsn != "" {
			fmt.Fprintf(w, "            -dsn '%s'\n", e.dsn)
		}
	}
	fmt.Fprint(w, "\nFlags\n\n")
	f := new(settings).flags()
	f.SetOutput(w)
	f.PrintDefaults()
}

// clean makes text from elsewhere safe to print on one line of a terminal.
func clean(text string) string {
	printable := strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, strings.Join(strings.Fields(text), " "))
	return fmt.Sprintf("%.2000s", printable)
}
