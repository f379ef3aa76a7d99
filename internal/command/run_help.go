package command

import (
	"fmt"
	"io"
	"slices"

	"github.com/dlock-go/dlock"
)

const runHelp = `Usage: dlock run [flags] NAME -- command [arguments]

Runs the command while it holds the lock NAME, and releases the lock when the
command has ended:

%s
Exit status: that of the command, or 128 + n if signal n ended it. Or:

    2  not run: the arguments or the config file are not valid
    0  also if -once-per says that no run is due
  121  not run: another holder has the lock, and -n or -w says not to wait
       (-E sets another status)
  122  not run: the store could not be reached, or failed
  123  the lock was lost before it was released: the command was ended, or
       others may have had the lock while it ran
  124  the command was ended because it ran for longer than -max
  125  not run: dlock could not watch the command, for example without /proc
  126  not run: the file cannot be executed
  127  not run: there is no such command

The command finds the lock in its environment: DLOCK_LOCK is NAME, DLOCK_NODE
the name in the queue, and DLOCK_TOKEN the fencing token, a number that rises
with each holder. Have the resource refuse a smaller token than it has seen. A
command that takes NAME again waits for itself.

What holds the lock

The lock is held until the command and all that it started have ended. Processes
that are left when the command has ended get SIGTERM, and SIGKILL after the
grace (see below). A command that runs for longer than -max, and all that it
started, get SIGTERM, and SIGKILL after 10 s. Then the lock is released.
-hold 30s keeps the lock for 30 s at least, so that a short job that cron starts
on several machines at the same time runs once, if their clocks differ by less.
Use it with -n. A signal ends that wait. -once-per does more.

Once per period

-once-per 1h runs the command only if none has succeeded for this lock in the
last hour, however short it was. Start the job on several machines by cron, and
one of them runs it. The others wait. If the command fails, or its machine dies,
the next one runs it; otherwise they exit with status 0 and do nothing. The hour
counts from the start of a run, by the clock of the store; a start may come two
minutes early, but at most a quarter of the period, so clocks may differ by a
minute. (Where the store has no clock, as etcd, those of the machines count.)
What has run is kept in the store: see dlock last. For a daily job give less than 24h: the day on
which daylight saving time begins has 23 hours, and the job would be left out.

Signals

SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 are passed on to the
command; it decides whether to end. Before the command runs, each of them ends
the wait for the lock, with status 128 + n, and a second SIGINT does not wait
until the queue is left. SIGINT and SIGQUIT of a terminal reach the command
directly, so they are not passed on while dlock is in the foreground.

If the lock is lost

When the store cannot be reached for three quarters of the session timeout, the
lock is lost. The command, and all that it started, get SIGTERM at once, and
SIGKILL after the grace: an eighth of the session timeout, 10 s at most. The
store gives the lock to nobody else before a quarter of the session timeout has
passed. (On ZooKeeper, lease_margin replaces that quarter, and the grace is half
of it.) The same is so if the store may have lost data, as Redis after a
restart, because it then grants nothing for a while. If an operator removes the node or ends the session, others may have the
lock at once, so there is no grace, only SIGKILL.

If dlock is killed, the command and all that it started get SIGKILL, and then
the lock is released. If dlock is stopped, it keeps the lock. A second process
of dlock holds the lock. If that one is killed, or stopped for so long that the
store might give the lock away, the first one kills the command. On SQLite the
lock is free at once when the second one is killed, so the command may overlap
for milliseconds with the next one.

On Linux, all that the command started includes processes that have left its
process group, such as daemons. Elsewhere it is the process group, and a command
that reads the terminal stops. Processes with the rights of another user, as
with sudo, cannot be killed: dlock waits until they end.

The store

Flags come first, then the environment, then the config file. -v names the store.
With DLOCK_REQUIRE=shared, or require = shared in the config file, dlock refuses
a store of one machine. A job on several machines needs that.
%s
`

// withLocal and withoutLocal say which store dlock run uses if none is named,
// in a program with or without the SQLite driver.
const (
	withLocal = `Without any of them, the lock is in a SQLite file in the user's state directory.
It needs no server, and excludes only commands of this user on this machine.
Users of one machine exclude each other only if all use the same file:
-dsn /var/lib/dlock/locks.db, made before for their group:
  install -d -m 2770 -g locks /var/lib/dlock
  install -m 660 -g locks /dev/null /var/lib/dlock/locks.db
-driver mem is refused, because it excludes nobody.
`
	withoutLocal = `Without any of them, dlock refuses to run the command. The program
` + allDrivers + ` uses a SQLite file then,
in the user's state directory. It excludes only commands of this user on this
machine; users of one machine exclude each other only if they give the same file
by -dsn. -driver mem is refused, because it excludes nobody.
`
)

func writeRunHelp(w io.Writer) {
	examples, local := `  dlock run backup -- ./backup.sh
`, withLocal
	if !slices.Contains(dlock.Drivers(), localDriver) {
		examples, local = "", withoutLocal
	}
	examples += `  dlock run -dsn zk://zk1:2181/locks -w 30s backup -- ./backup.sh
  0 3 * * * dlock run -once-per 20h nightly -- /usr/local/bin/nightly   (crontab)
`
	fmt.Fprintf(w, runHelp, examples, local)
	fmt.Fprint(w, "Flags\n\n")
	f := new(runSettings).flags()
	f.SetOutput(w)
	f.PrintDefaults()
}
