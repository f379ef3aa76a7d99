package demo

import (
	"fmt"
	"io"
	"strings"

	"github.com/dlock-go/dlock"
)

// examples describe the drivers of this repository, by name, for the help text.
var examples = map[string]struct {
	title, dsn string
	port       string // the server's default port; empty if there is no server
	optional   bool   // the driver needs no data source name
}{
	inMemory:   {title: "a store within this process", optional: true},
	"zk":       {title: "ZooKeeper", dsn: "zk://localhost:2181/locks", port: "2181"},
	"redis":    {title: "Redis", dsn: "redis://localhost:6379", port: "6379"},
	"postgres": {title: "PostgreSQL", dsn: "postgres://user@localhost/database", port: "5432"},
	"mysql":    {title: "MySQL or MariaDB", dsn: "user@tcp(localhost:3306)/database", port: "3306"},
	"sqlite":   {title: "a file that the processes of this machine share", dsn: "/tmp/locks.db", optional: true},
	"etcd":     {title: "etcd", dsn: "etcd://localhost:2379", port: "2379"},
}

// allDrivers is the import path of a dlock program that includes every driver.
const allDrivers = "github.com/dlock-go/dlock/contrib/cmd/dlock"

func available() string { return strings.Join(dlock.Drivers(), ", ") }

const helpText = `Usage: dlock demo [flags]

Workers, each with a session and a host name of its own, take one lock, at
random shared (R) or exclusive (W), hold it for a moment and release it. Every
event is shown as it happens. A writer increments a counter ten times while it
holds the lock: it reads the counter, waits, and writes it, so that increments
are lost if two writers hold the lock at the same time.

At the end come a time line and a verdict on four rules:

  alone    no other worker held the lock together with a writer
  counter  no increment was lost, and the counter never changed under a reader
  order    first come, first served, if two workers could not share the lock
  tokens   every fencing token was above those of all earlier writers

A worker that waits for longer than -timeout gives up. That is shown, and so is
a lock that was lost because its session ended. Neither breaks a rule. (A process
that is paused just before it writes, for longer than its session lasts, writes
without the lock when it wakes up. Only fencing tokens prevent that.)

With -svg the time line is written to a file as a picture, too. Arrows show which
release let whom in.

Faults

With -fault two workers sell from one stock that checks tokens, and the one that
holds the lock is hit by a fault before it writes:

  pause    its process is stopped with SIGSTOP, as if its machine was suspended
  cut      its connection to the store carries nothing any more
  kill     its process is killed, while its write is still in the network

The store ends its session, and the other worker gets the lock and writes. Then
the late write arrives. The stock refuses it, because its token is smaller. In
memory, a paused worker sleeps while the store hears nothing from it, and nothing
can be killed. Only stores with one server in -dsn can be cut off.

Ctrl-C, SIGTERM and a closed terminal release all locks, and the verdict is about
the run so far. A second Ctrl-C ends the program at once.

Exit status: 0, no rule was broken; 1, a rule was broken, or the store could not
be reached or failed, or no worker got the lock, or the output could not be
written; 2, the arguments are not valid.

Several processes

On a store that processes can share, -processes child processes share the
workers. The counter is then a number in a temporary file, and all times come
from the clock of the first process. At the end one child is killed while its
first worker holds the lock. One worker of each other child then asks for the
lock, and gets it when the store has ended the session of the dead process: on
SQLite at once, and on most stores after the session timeout, a parameter of the
data source name. If another child fails, all end, and there is no verdict.

Drivers of this program

`

func writeHelp(w io.Writer) {
	fmt.Fprint(w, helpText)
	for _, name := range dlock.Drivers() {
		e := examples[name]
		fmt.Fprintf(w, "  %-9s %s\n", name, e.title)
		if e.dsn != "" {
			fmt.Fprintf(w, "            -dsn '%s'%s\n", e.dsn, map[bool]string{true: " (not required)"}[e.optional])
		}
	}
	fmt.Fprint(w, "\nFlags\n\n")
	f := new(settings).flags()
	f.SetOutput(w)
	f.PrintDefaults()
}
