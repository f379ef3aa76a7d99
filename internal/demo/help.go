package demo

import (
	"fmt"
	"io"
)

const helpText = `Usage: dlock demo [flags]

Workers, each with a session and a host name of its own, take one lock, at
random shared (R) or exclusive (W), hold it for a moment and release it. Every
event is shown as it happens. A writer bumps a counter ten times while it holds
the lock: it reads, dawdles, and writes, so that bumps get lost unless it is
alone.

At the end come a time line and a verdict on four rules:

  alone    no writer held the lock together with anybody
  counter  no bump got lost, and the counter stood still under readers
  order    first come, first served, where two could not share
  tokens   every fencing token was above those of all writers before

A worker that waits for longer than -timeout gives up. That is shown, and so is
a lock that was lost because its session ended; neither breaks a rule. Whoever
loses the lock stops at once. (A process that is paused just before it writes,
for longer than its session lasts, writes without the lock when it wakes up. No
lock can prevent that; it is what fencing tokens are for.)

Ctrl-C releases everything and gives the verdict on what has been seen. A second
Ctrl-C ends the program at once.

Exit status: 0, no rule was broken; 1, a rule was broken, or the store could not
be reached or failed, or nobody got the lock; 2, the arguments make no sense.

Several processes

With a store that processes share, several can run at once on one lock:

  dlock demo -driver zk -dsn zk://localhost:2181/locks -counter /tmp/counter

Each judges what its own workers saw, since clocks of different machines cannot
be compared. What goes on between processes shows in the counter. With -counter
it is a number in a file that they all bump, on one machine, again with no
protection but the lock. Beside it, FILE.bumps grows by one dot per bump, which
is an append and cannot get lost. Whoever holds the lock, reader or writer of
any process, compares the two files all the time, and sees a number that changes
by itself. So the last one to hold the lock has checked the total.

To start over remove both files. Do so too if a process was killed, which may
happen between the two writes of a bump. With -driver mem the lock ends at the
process: two processes on one FILE show what happens without a common lock.

Flags
`

// writeHelp is "dlock demo -h".
func writeHelp(w io.Writer) {
	fmt.Fprint(w, helpText)
	f := new(settings).flags()
	f.SetOutput(w)
	f.PrintDefaults()
}
