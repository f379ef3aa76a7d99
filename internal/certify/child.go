// Package certify runs the conformance kit on a user's own store. The kit needs
// package testing, which writes to standard output and ends the process, so it
// runs in a child process.
package certify

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// Environment variables of the child process.
const (
	partsVariable   = "DLOCK_CERTIFY_PARTS"   // file in which the child records the parts of the store that it makes and removes
	casesVariable   = "DLOCK_CERTIFY_CASES"   // cases to run, as a pattern for go test -run
	timeoutVariable = "DLOCK_CERTIFY_TIMEOUT" // the session timeout
)

// IsChild reports whether this process was started by [Run], and so must call
// [Child].
func IsChild() bool { return os.Getenv(partsVariable) != "" }

// Child runs the conformance kit on the store and ends the process.
func Child(store driver.Connector) {
	timeout, err := time.ParseDuration(os.Getenv(timeoutVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, "dlock certify:", err)
		os.Exit(2)
	}
	os.Args = []string{os.Args[0], "-test.v", "-test.timeout=0", "-test.run=" + os.Getenv(casesVariable)}
	if flag.Lookup("test.v") == nil { // a test binary has already defined these flags
		flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
		testing.Init()
	}
	k := &kit{store: store, timeout: timeout}
	testing.Main(regexp.MatchString, []testing.InternalTest{{Name: "Certify", F: k.run}}, nil, nil)
}

// kit runs the conformance kit on a store and provides the hooks for its
// configuration.
type kit struct {
	store   driver.Connector
	timeout time.Duration

	mu       sync.Mutex
	networks map[driver.Session]*faultnet.Network
}

func (k *kit) run(t *testing.T) {
	probe := k.open(t)
	s, err := probe.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	timeout := driver.Inspect(s).Describe().Timeout
	if timeout == 0 {
		timeout = k.timeout
	}
	config := dlocktest.Config{
		New: func(t *testing.T) driver.Connector { return k.open(t) },
		// Allow for the delay with which a store notices that a session has
		// expired.
		SessionTimeout: timeout * 3 / 2,
		Repeats:        true,
	}
	if k.network(s).Connections() > 0 {
		config.CutOff = func(_ *testing.T, s driver.Session) (heal func()) { return k.network(s).Cut() }
		config.Reset = func(_ *testing.T, s driver.Session) { k.network(s).Reset() }
		config.DelayReplies = func(_ *testing.T, s driver.Session, d time.Duration) { k.network(s).DelayReplies(d) }
	}
	if _, ok := s.(leased); ok {
		config.Pause = func(_ *testing.T, s driver.Session, d time.Duration) { dlocktest.SkewLease(s.(leased).Lease(), d) }
	}
	if err := driver.Inspect(s).Remove(t.Context(), "q", driver.Place{}); !errors.Is(err, errors.ErrUnsupported) {
		config.RemoveNode = removeNode
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dlocktest.Run(t, config)
}

// removeNode is the hook that removes a node as an operator would.
func removeNode(t *testing.T, c driver.Connector, queue, name string) {
	s, err := c.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, err := driver.Inspect(s).Read(t.Context(), queue, name)
	if err == nil {
		err = driver.Inspect(s).Remove(t.Context(), queue, driver.Place{Node: info.Node, Token: info.Token})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// leased is implemented by sessions that give access to their lease.
type leased interface{ Lease() *driver.Lease }

func (k *kit) network(s driver.Session) *faultnet.Network {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.networks[s]
}

// part is a connector to a separate part of the user's store. Each session gets
// its own faultnet.Network.
type part struct {
	kit  *kit
	name string
}

// open returns a new part of the store, which is removed when t ends.
func (k *kit) open(t *testing.T) driver.Connector {
	p := &part{kit: k, name: "c" + strings.ToLower(rand.Text()[:12])}
	if err := note(p.name); err != nil {
		t.Fatal(err)
	}
	_, remove, err := p.isolate(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		if err := remove(ctx); err != nil {
			t.Logf("the part %q of the store stays for now: %v", p.name, err)
			return
		}
		_ = note("-" + p.name) // so that the parent does not remove it again
	})
	return p
}

const removeTimeout = 30 * time.Second

// note tells the parent process that a part was made or, with a leading "-",
// removed.
func note(name string) error {
	f, err := os.OpenFile(os.Getenv(partsVariable), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(name + "\n")
	return err
}

func (p *part) isolate(n *faultnet.Network) (driver.Connector, func(context.Context) error, error) {
	i := driver.Isolation{Name: p.name, SessionTimeout: p.kit.timeout}
	if n != nil {
		i.Dial = n.Dial
	}
	return driver.Isolate(p.kit.store, i)
}

// Connect implements driver.Connector.
func (p *part) Connect(ctx context.Context) (driver.Session, error) {
	n := new(faultnet.Network)
	c, _, err := p.isolate(n)
	if err != nil {
		return nil, err
	}
	s, err := c.Connect(ctx)
	if err == nil {
		p.kit.mu.Lock()
		defer p.kit.mu.Unlock()
		if p.kit.networks == nil {
			p.kit.networks = make(map[driver.Session]*faultnet.Network)
		}
		p.kit.networks[s] = n
	}
	return s, err
}

// Diagnose implements driver.Diagnoser.
func (p *part) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	c, _, err := p.isolate(nil)
	if err != nil {
		return err
	}
	return driver.Diagnose(ctx, c, report)
}
