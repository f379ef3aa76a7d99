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

// settings are the flags of the command line.
type settings struct {
	driver, dsn    string
	lock           string
	host           string
	processes      int
	workers        int
	rounds         int
	sharedRatio    float64
	hold           time.Duration
	timeout        time.Duration
	connectTimeout time.Duration
	counterFile    string
	seed           uint64

	args  []string // the arguments on the command line
	given []string // the flags among them, each as -name=value
}

// dsnVariable is the environment variable that is read if -dsn is not given.
const dsnVariable = "DLOCK_DSN"

const (
	defaultProcesses = 3 // on a store that processes can share
	maxProcesses     = 100
	maxWorkers       = 1000
	maxRounds        = 1000
	maxHost          = 64
	inMemory         = "mem"
)

func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("dlock demo", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.driver, "driver", inMemory, "kind of store: "+available())
	f.StringVar(&s.dsn, "dsn", "", "where the store is; dlock demo -h shows an example for each driver\n(if not given: "+dsnVariable+" of the environment; put it there if it has a\npassword, because every user of this machine can see arguments)")
	f.StringVar(&s.lock, "lock", "demo", "`name` of the lock")
	f.StringVar(&s.host, "host", "", "`prefix` of the workers' host names, to tell processes apart\n(mem: worker; else this host's name and the process id)")
	f.IntVar(&s.processes, "processes", 0, fmt.Sprintf("how many processes share the workers\n(0: %d, or 1 in memory, and at most one for each worker)", defaultProcesses))
	f.IntVar(&s.workers, "workers", 10, "how many workers, each with a session of its own, in all processes together")
	f.IntVar(&s.rounds, "rounds", 1, "how often each worker takes the lock")
	f.Float64Var(&s.sharedRatio, "shared-ratio", 0.5, "the probability that a worker reads, from 0 to 1")
	f.DurationVar(&s.hold, "hold", 100*time.Millisecond, "how long a worker holds the lock")
	f.DurationVar(&s.timeout, "timeout", time.Minute, "how long a worker waits for the lock before it gives up")
	f.DurationVar(&s.connectTimeout, "connect-timeout", 10*time.Second, "how long to try to reach the store")
	f.StringVar(&s.counterFile, "counter", "", "keep the counter in this `file`, shared with other processes")
	f.Uint64Var(&s.seed, "seed", 0, "repeat the choices of the run that named this seed (0: new ones)")
	return f
}

// parse returns the settings. The error is flag.ErrHelp, or says what is wrong
// with the arguments.
func parse(args []string) (*settings, error) {
	s := &settings{args: args}
	f := s.flags()
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	f.Visit(func(g *flag.Flag) { s.given = append(s.given, fmt.Sprintf("-%s=%s", g.Name, g.Value)) })
	s.complete()
	return s, s.check()
}

// complete sets the settings that were not given.
func (s *settings) complete() {
	for s.seed == 0 {
		s.seed = uint64(rand.Uint32())
	}
	if s.processes == 0 {
		s.processes = 1
		if s.driver != inMemory {
			s.processes = max(1, min(defaultProcesses, s.workers))
		}
	}
	if s.dsn == "" && s.driver != inMemory {
		s.dsn = os.Getenv(dsnVariable)
	}
	if s.host == "" {
		s.host = "worker"
		if s.driver != inMemory {
			name, _ := os.Hostname() // empty after an error
			name, _, _ = strings.Cut(name, ".")
			s.host = fmt.Sprintf("%.20s-%d", notInHost.ReplaceAllString(cmp.Or(name, "host"), "_"), os.Getpid())
		}
	}
}

// victim returns the number of the process that is killed, which the seed decides.
func (s *settings) victim() int { return 1 + int(s.seed%uint64(s.processes)) }

// processHost returns the prefix of the host names in the process with that number.
func (s *settings) processHost(number int) string { return fmt.Sprintf("%s-p%d", s.host, number) }

var (
	hostForm  = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	notInHost = regexp.MustCompile(`[^A-Za-z0-9._-]`)
)

func (s *settings) check() error {
	longest := maxHost
	if s.processes > 1 {
		longest -= len(s.processHost(s.processes)) - len(s.host)
	}
	namesDriver := slices.ContainsFunc(s.given, func(g string) bool { return strings.HasPrefix(g, "-driver=") })
	needed := examples[s.driver].dsn
	switch {
	case s.workers < 1 || s.workers > maxWorkers:
		return fmt.Errorf("-workers %d: must be from 1 to %d", s.workers, maxWorkers)
	case s.processes < 1 || s.processes > maxProcesses:
		return fmt.Errorf("-processes %d: must be from 1 to %d", s.processes, maxProcesses)
	case s.processes > 1 && s.driver == inMemory:
		return fmt.Errorf("-processes %d: a store in memory belongs to one process; choose another -driver", s.processes)
	case s.processes > s.workers:
		return fmt.Errorf("-processes %d: there are only %d workers; raise -workers", s.processes, s.workers)
	case s.rounds < 1 || s.rounds > maxRounds:
		return fmt.Errorf("-rounds %d: must be from 1 to %d", s.rounds, maxRounds)
	case !(s.sharedRatio >= 0 && s.sharedRatio <= 1): // written so that NaN is refused
		return fmt.Errorf("-shared-ratio %v: must be from 0 to 1", s.sharedRatio)
	case s.hold < 0:
		return fmt.Errorf("-hold %v: must not be negative", s.hold)
	case s.timeout <= 0:
		return fmt.Errorf("-timeout %v: must be positive", s.timeout)
	case s.connectTimeout <= 0:
		return fmt.Errorf("-connect-timeout %v: must be positive", s.connectTimeout)
	case !hostForm.MatchString(s.host) || len(s.host) > longest:
		return fmt.Errorf("-host %q: must be 1 to %d of the characters A-Z a-z 0-9 . _ -", s.host, longest)
	case s.driver == inMemory && (s.dsn != "" && !namesDriver || strings.Contains(s.dsn, "://")):
		return errors.New("-dsn needs the -driver of its store, such as -driver zk")
	case s.dsn == "" && needed != "" && !examples[s.driver].optional:
		return fmt.Errorf("-driver %s needs -dsn, such as -dsn '%s', or %s in the environment", s.driver, needed, dsnVariable)
	case needed != "" && !slices.Contains(dlock.Drivers(), s.driver):
		return fmt.Errorf("this program has the drivers %s, and %s has all", available(), allDrivers)
	}
	if err := driver.CheckQueue(s.lock); err != nil {
		return fmt.Errorf("-lock: %w", err)
	}
	return nil
}
