package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// The command "dlock run" is three processes:
//
//	dlock    started by the user: passes signals on, prints, and exits with the status
//	holder   child of dlock, this program again: holds the lock
//	command  child of the holder process
//
// Users and supervisors kill dlock, so another process holds the lock. If dlock
// dies, the holder process kills the command, then releases the lock. If the
// holder process dies, dlock kills the command before the session times out. If
// the holder process is stopped (SIGSTOP), it does not answer dlock's pings,
// and dlock kills the command, too.
//
// The margin of a lease is the time between its end and the store's next grant,
// by default a quarter of the session timeout. When the lease has ended, the
// holder process sends SIGTERM to the command. It sends SIGKILL at the latest
// half a margin after it last found the lease valid. If it does not, dlock
// kills the command before three quarters of the margin are over.
//
// On Linux, the holder process and dlock adopt their orphaned descendants, and
// so find all processes of the command. Elsewhere, they know only its group.

// Exit statuses of dlock run. Those from 124 mean much the same as with timeout
// and shells, which do not use the others.
const (
	lockedStatus      = 121 // command not run: another contender has the lock
	storeStatus       = 122 // command not run: the store failed
	lostStatus        = 123 // the lock was lost while the command ran
	tooLongStatus     = 124 // the command ran for longer than -max
	cannotWatchStatus = 125 // command not run: dlock could not watch it
	cannotRunStatus   = 126
	notFoundStatus    = 127
	signalBaseStatus  = 128
)

// tryFor is how long dlock run -n tries to reach the store if there is no -w.
const tryFor = 10 * time.Second

// runSettings are the arguments of dlock run. The holder process gets them too.
type runSettings struct {
	Driver, DSN string
	Name        string
	Shared, Try bool
	Quiet       bool
	Locked      int // exit status without a grant in time
	Wait, Hold  time.Duration
	Max         time.Duration // 0 for no limit
	OncePer     time.Duration // 0 to run always
	Path        string        // the executable of Command
	Command     []string      // as typed
	Group       int           // process group to join; 0: its own
	ShowsWaits  bool          // whether to say who holds the lock
	NamesStore  bool

	store store
	args  []string // as typed
}

func (r *runSettings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("dlock run", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&r.Shared, "shared", false, "take the lock shared with other holders that take it shared")
	f.BoolVar(&r.Try, "n", false, "fail at once if the lock is not free")
	f.BoolVar(&r.Quiet, "q", false, "say nothing if the lock is not granted because of -n or -w")
	f.IntVar(&r.Locked, "E", lockedStatus, "exit with this `status` if the lock is not granted because of -n or -w")
	f.Var((*seconds)(&r.Wait), "w", "wait for the lock and the store for at most this `time`, such as 30s or 30\n(if not given: no limit for the lock, and about a minute for the store)")
	f.Var((*seconds)(&r.Hold), "hold", "keep the lock for at least this `time`, also if the command ends earlier")
	f.Var((*seconds)(&r.Max), "max", "end a command that runs for longer than this `time`, such as 1h")
	f.Var((*seconds)(&r.OncePer), "once-per", "do not run the command if one has succeeded in this `time`, such as 1h or 7d")
	f.BoolVar(&r.NamesStore, "v", false, "name the store; say who holds the lock, or that -once-per has run\nnothing, also if standard error is not a terminal")
	r.store.flags(f)
	return f
}

// seconds is a duration flag that also accepts days, as in 1d12h, and a plain
// number of seconds.
type seconds time.Duration

func (s *seconds) String() string { return time.Duration(*s).String() }

func (s *seconds) Set(text string) error {
	d, err := parseTime(text)
	if err != nil || d <= 0 {
		return errors.New("must be a positive time such as 30s, 1h30m or 1d12h")
	}
	*s = seconds(d)
	return nil
}

func parseTime(text string) (time.Duration, error) {
	first, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		if err != nil {
			d, err = time.ParseDuration(text + "s")
		}
		return d, err
	}
	days, err := strconv.ParseUint(first, 10, 16) // 16 bits, so that the sum fits
	if err != nil || rest == "" {
		return time.Duration(days) * 24 * time.Hour, err
	}
	d, err := time.ParseDuration(rest)
	return time.Duration(days)*24*time.Hour + d, err
}

func parseRun(args []string) (*runSettings, error) {
	r := &runSettings{args: args}
	f := r.flags()
	if err := f.Parse(args); err != nil {
		return r, err
	}
	if r.Name = f.Arg(0); r.Name == "" {
		return r, errors.New("give the name of a lock and a command, as in: dlock run backup -- ./backup.sh")
	}
	r.Command = f.Args()[1:]
	if len(r.Command) > 0 {
		switch first := r.Command[0]; {
		case first == "--":
			r.Command = r.Command[1:]
		case strings.HasPrefix(first, "-"):
			return r, fmt.Errorf("flag %s comes after the name of the lock: put it before, or put -- before the command", first)
		}
	}
	if len(r.Command) == 0 || r.Command[0] == "" {
		return r, errors.New("give a command after the name of the lock, as in: dlock run backup -- ./backup.sh")
	}
	if r.OncePer > 0 && (r.Try || r.Shared) {
		return r, errors.New("-once-per waits for the command that runs, in case that it fails: leave out -n and -shared")
	}
	if r.Locked < 0 || r.Locked > 255 {
		return r, errors.New("-E takes a status from 0 to 255")
	}
	if err := driver.CheckQueue(r.Name); err != nil {
		return r, err
	}
	if err := r.store.resolve(); err != nil {
		return r, err
	}
	r.Driver, r.DSN = r.store.driver, r.store.dsn
	client, err := r.store.open()
	if err != nil {
		return r, err
	}
	return r, client.Close() // does no I/O, because there is no session
}

// runMain implements dlock run. It ignores ctx, because signals go to the command.
func runMain(_ context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 2 && args[0] == holderArgument {
		return holderMain(args[1])
	}
	r, err := parseRun(args)
	if errors.Is(err, flag.ErrHelp) {
		writeRunHelp(stdout)
		return 0
	}
	if err != nil {
		r.say(stderr, err.Error()+"\nRun 'dlock run -h' for help")
		return usageStatus
	}
	if r.Path, err = exec.LookPath(r.Command[0]); err != nil && !errors.Is(err, exec.ErrDot) {
		r.say(stderr, fmt.Sprintf("not run: %v", err))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			return notFoundStatus
		}
		return cannotRunStatus
	}
	return supervise(r, stderr)
}

// say prints a message, without the passwords of the store.
func (r *runSettings) say(w io.Writer, text string) {
	text = strings.TrimPrefix(text, "dlock: ")
	text = strings.ReplaceAll(text, ": dlock: ", ": ")
	fmt.Fprintf(w, "dlock run: %s\n", r.store.hide(text, r.args))
}
