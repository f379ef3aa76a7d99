package demo

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// settings are the arguments of the demo. A child process gets them from its
// parent.
type settings struct {
	Driver, DSN, Lock string
	Host              string // prefix of the workers' host names
	Processes         int
	Workers, Rounds   int
	SharedRatio       float64
	Hold, Timeout     time.Duration
	ConnectTimeout    time.Duration
	Seed              uint64
	CounterFile       string
	SVG               string // file for the picture; empty for none
	Fault             string // which fault to show in a scene; empty for a normal run of workers
	Victim            bool   // whether this process is to be killed while it holds the lock
	Holder            bool   // the fault hits a worker of this process
	Paused            int    // id of the process that the fault pauses; set only in the other process

	args []string // as typed
}

const dsnVariable = "DLOCK_DSN"

const (
	defaultProcesses = 3 // if the store can be shared by processes
	maxProcesses     = 100
	maxWorkers       = 1000
	maxRounds        = 1000
	inMemory         = "mem"
)

func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("dlock demo", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.Driver, "driver", inMemory, "kind of store: "+available())
	f.StringVar(&s.DSN, "dsn", "", "where the store is; dlock demo -h shows an example for each driver\n(if not given: "+dsnVariable+" of the environment; put it there if it has a\npassword, because every user of this machine can see arguments)")
	f.StringVar(&s.Lock, "lock", "demo", "`name` of the lock")
	f.IntVar(&s.Processes, "processes", 0, fmt.Sprintf("how many processes share the workers\n(0: %d, or 1 in memory, and at most one for each worker)", defaultProcesses))
	f.IntVar(&s.Workers, "workers", 10, "how many workers, each with a session of its own, in all processes together")
	f.IntVar(&s.Rounds, "rounds", 1, "how often each worker takes the lock")
	f.Float64Var(&s.SharedRatio, "shared-ratio", 0.5, "the probability that a worker reads, from 0 to 1")
	f.DurationVar(&s.Hold, "hold", 100*time.Millisecond, "how long a worker holds the lock")
	f.DurationVar(&s.Timeout, "timeout", time.Minute, "how long a worker waits for the lock before it gives up")
	f.DurationVar(&s.ConnectTimeout, "connect-timeout", 10*time.Second, "how long to try to reach the store")
	f.StringVar(&s.Fault, "fault", "", "instead show how a lock is lost, and how its token keeps a late write out:\n`fault` is pause, cut or kill")
	f.StringVar(&s.SVG, "svg", "", "write the time line as a picture to this `file`, too")
	f.Uint64Var(&s.Seed, "seed", 0, "repeat the choices of the run that named this seed (0: new ones)")
	return f
}

// parse parses the command line. It returns flag.ErrHelp, or an error that says
// which argument is wrong.
func parse(args []string) (*settings, error) {
	s := &settings{args: args}
	f := s.flags()
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	given := make(map[string]bool)
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if s.Fault != "" {
		for _, name := range []string{"processes", "workers", "rounds", "shared-ratio", "seed"} {
			if given[name] {
				return nil, fmt.Errorf("-%s has no effect with -fault", name)
			}
		}
		s.setScene(given["hold"])
	}
	s.setDefaults()
	return s, s.check()
}

var notInHost = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// setDefaults sets defaults that depend on other settings or on the machine.
func (s *settings) setDefaults() {
	for s.Seed == 0 {
		s.Seed = uint64(rand.Uint32())
	}
	if s.Driver == inMemory {
		s.Host = "worker"
		s.Processes = cmp.Or(s.Processes, 1)
		return
	}
	s.Processes = cmp.Or(s.Processes, max(1, min(defaultProcesses, s.Workers)))
	s.DSN = cmp.Or(s.DSN, os.Getenv(dsnVariable))
	name, _ := os.Hostname() // empty after an error
	name, _, _ = strings.Cut(name, ".")
	s.Host = fmt.Sprintf("%.20s-%d", notInHost.ReplaceAllString(cmp.Or(name, "host"), "_"), os.Getpid())
}

// setScene sets the defaults of a run with -fault. It has two workers, each in
// its own process if the fault is a paused or killed process.
func (s *settings) setScene(hold bool) {
	s.Workers, s.Processes = 2, 2
	if s.Driver == inMemory || s.Fault == faultCut {
		s.Processes = 1
	}
	if !hold {
		s.Hold = time.Second
	}
	if s.Driver == inMemory && s.DSN == "" {
		s.DSN = "?session_timeout=2s"
	}
}

func (s *settings) checkScene() error {
	switch {
	case !slices.Contains([]string{faultPause, faultCut, faultKill}, s.Fault):
		return fmt.Errorf("-fault %s: must be pause, cut or kill", s.Fault)
	case s.Fault == faultKill && s.Driver == inMemory:
		return errors.New("-fault kill: a store in memory dies with its process; choose another -driver")
	case s.Fault == faultPause && s.Processes > 1 && !canPause:
		return errors.New("-fault pause: this system cannot pause a process; try -fault kill")
	case s.Fault == faultCut && s.Driver != inMemory:
		_, err := s.serverInDSN()
		return err
	}
	return nil
}

func (s *settings) check() error {
	needed := examples[s.Driver].dsn
	switch {
	case s.Workers < 1 || s.Workers > maxWorkers:
		return fmt.Errorf("-workers %d: must be from 1 to %d", s.Workers, maxWorkers)
	case s.Processes < 1 || s.Processes > maxProcesses:
		return fmt.Errorf("-processes %d: must be from 1 to %d", s.Processes, maxProcesses)
	case s.Processes > 1 && s.Driver == inMemory:
		return fmt.Errorf("-processes %d: a store in memory belongs to one process; choose another -driver", s.Processes)
	case s.Processes > s.Workers:
		return fmt.Errorf("-processes %d: there are only %d workers; raise -workers", s.Processes, s.Workers)
	case s.Rounds < 1 || s.Rounds > maxRounds:
		return fmt.Errorf("-rounds %d: must be from 1 to %d", s.Rounds, maxRounds)
	case !(s.SharedRatio >= 0 && s.SharedRatio <= 1): // negated so that it also refuses NaN
		return fmt.Errorf("-shared-ratio %v: must be from 0 to 1", s.SharedRatio)
	case s.Hold < 0:
		return fmt.Errorf("-hold %v: must not be negative", s.Hold)
	case s.Timeout <= 0:
		return fmt.Errorf("-timeout %v: must be positive", s.Timeout)
	case s.ConnectTimeout <= 0:
		return fmt.Errorf("-connect-timeout %v: must be positive", s.ConnectTimeout)
	case s.Driver == inMemory && strings.ContainsAny(s.DSN, ":/@"):
		return errors.New("-dsn needs the -driver of its store, such as -driver zk")
	case s.DSN == "" && needed != "" && !examples[s.Driver].optional:
		return fmt.Errorf("-driver %s needs -dsn, such as -dsn '%s', or %s in the environment", s.Driver, needed, dsnVariable)
	case needed != "" && !slices.Contains(dlock.Drivers(), s.Driver):
		return fmt.Errorf("this program has the drivers %s, and %s has all", available(), allDrivers)
	}
	if err := driver.CheckQueue(s.Lock); err != nil {
		return fmt.Errorf("-lock: %w", err)
	}
	if s.Fault != "" {
		return s.checkScene()
	}
	return nil
}
