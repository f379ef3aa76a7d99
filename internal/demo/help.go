package demo

import (
	"fmt"
	"io"
)

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
a lock that was lost because its session ended. Neither breaks a rule. A worker
that loses the lock stops at once. (A process that is paused just before it
writes, for longer than its session lasts, writes without the lock when it wakes
up. No lock can prevent that. Fencing tokens can.)

Ctrl-C releases all locks and prints the verdict on the run so far. So do SIGTERM
and a terminal that is closed. A second Ctrl-C ends the program at once.

Exit status: 0, no rule was broken; 1, a rule was broken, or the store could not
be reached or failed, or no worker got the lock, or the output could not be
written; 2, the arguments are not valid.

Several processes

On a store that processes can share, this command starts -processes child
processes, which share the workers. The counter is then a number in a temporary
file, and the verdict is about the workers of all processes. All times come from
the clock of the first process.

When the workers of one of the children have had their turns, the first of them
takes the lock once more, and the child is killed while that worker holds the
lock. Then one worker of each other child asks for the lock. It gets the lock
when the store has ended the session of the dead process. Most stores do so when
the session timeout is over, which is a parameter of the data source name.
SQLite notices at once that a process has ended. The output says for how long
the lock stayed with the dead process.

An interrupt ends all children. If a child fails, the others end, too, and there
is no verdict. If this command is killed, the children end at once. No argument
of a child has the data source name.

Several commands

Several commands can use one lock, on one machine or on several machines:

  dlock demo -driver zk -dsn zk://localhost:2181/locks -counter /tmp/counter

Each command checks its own workers only, because clocks of different machines
cannot be compared. The counter checks across commands. With -counter it is a
number in a file on one machine, which all commands increment. Again only the
lock protects it. The file FILE.increments grows by one dot with each increment.
That is an append, which cannot be lost. Every worker that holds the lock
compares the two files again and again. So the last worker that held the lock
has checked the total.

To start over, remove both files. Do so, too, after you have killed a process:
that may have happened between the two writes of an increment. (A command does
not kill its child between them.) With -driver mem the lock belongs to one
process: two commands on one FILE show what happens without a common lock.

Drivers of this program

`

// writeHelp prints the text of "dlock demo -h".
func writeHelp(w io.Writer) {
	fmt.Fprint(w, helpText, storesText(), "\nFlags\n\n")
	f := new(settings).flags()
	f.SetOutput(w)
	f.PrintDefaults()
}
