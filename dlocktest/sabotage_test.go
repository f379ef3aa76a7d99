package dlocktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// base is what saboteurs break: a sound session with every optional interface.
type base = *releasing

// sabotages are drivers that break one rule each, and the cases that have to see it.
var sabotages = []struct {
	name  string
	rule  string // what the failure has to name
	cases string // what to run, as for go test -run
	wrap  func(s base, st *memdriver.Store) driver.Session
}{
	{"lists by name", "rule 1 (order)", "rule01", func(s base, _ *memdriver.Store) driver.Session { return byName{s} }},
	{"lists what it listed before", "rule 1 (order)", "rule01/list-sees", func(s base, _ *memdriver.Store) driver.Session {
		return &cached{releasing: s}
	}},
	{"lists foreign nodes", "rule 1 (order)", "rule01/unsequenced", func(s base, _ *memdriver.Store) driver.Session { return listsForeign{s} }},
	{"takes a slash in a prefix", "rule 2 (names)", "rule02/a-bad", func(s base, _ *memdriver.Store) driver.Session { return takesSlash{s} }},
	{"has no epochs", "rule 2 (names)", "rule02/a-name-that", func(s base, _ *memdriver.Store) driver.Session { return noEpoch{s} }},
	{"takes the sequence for the token", "rule 3 (tokens)", "rule03", func(s base, _ *memdriver.Store) driver.Session { return seqToken{s} }},
	{"forgets what a cancelled create made", "rule 4 (all or nothing)", "rule04/a-create-(whose|cancelled)",
		func(s base, _ *memdriver.Store) driver.Session { return orphans{s} }},
	{"cleans up too much", "rule 4 (all or nothing)", "rule04/a-clean", func(s base, st *memdriver.Store) driver.Session {
		return sweeper{s, st}
	}},
	{"lists before it creates, for alone", "rule 5 (alone)", "rule05", func(s base, _ *memdriver.Store) driver.Session { return racyAlone{s} }},
	{"is always alone", "rule 5 (alone)", "rule05", func(s base, _ *memdriver.Store) driver.Session { return alwaysAlone{s} }},
	{"waits for nodes that are gone", "rule 6 (watch)", "rule06/watch-of-a-node-deleted-before", func(s base, _ *memdriver.Store) driver.Session { return blindToGone{s} }},
	{"arms its watches late", "rule 6 (watch)", "rule06/armed-first", func(s base, _ *memdriver.Store) driver.Session { return lateArming{s} }},
	{"lists, then arms", "rule 6 (watch)", "rule06/a-deletion-that-meets", func(s base, _ *memdriver.Store) driver.Session { return lateArming{s} }},
	{"leaves watches open at its end", "rule 6 (watch)", "rule06/the-(close|expiry)", func(s base, _ *memdriver.Store) driver.Session { return openAtEnd{s} }},
	{"deletes by name", "rule 7 (delete)", "rule07", func(s base, st *memdriver.Store) driver.Session { return byNameDelete{s, st} }},
	{"takes gone for deleted", "rule 7 (delete)", "rule07/a-(second|delete)", func(s base, _ *memdriver.Store) driver.Session { return neverGone{s} }},
	{"looks at no clock", "rule 8 (session end)", "rule08/a-paused", func(s base, _ *memdriver.Store) driver.Session { return timersOnly{s} }},
	{"learns of its end late", "rule 8 (session end)", "rule08/a-session-cut-off-ends", func(s base, _ *memdriver.Store) driver.Session { return newLateEnd(s) }},
	{"lives again", "rule 8 (session end)", "rule08/a-session-that-ended", func(s base, _ *memdriver.Store) driver.Session { return &undead{releasing: s} }},
	{"closes in the background", "rule 9 (close)", "rule09/close-removes", func(s base, _ *memdriver.Store) driver.Session { return lazyClose{s} }},
	{"deletes before it is done", "rule 9 (close)", "rule09/done-closes", func(s base, st *memdriver.Store) driver.Session {
		return &deletesFirst{releasing: s, store: st}
	}},
	{"closes twice with an error", "rule 9 (close)", "rule09/a-second", func(s base, _ *memdriver.Store) driver.Session { return &closesOnce{releasing: s} }},
	{"does not look at ctx", "rule 10 (methods)", "rule10/a-call-while-cut-off-returns", func(s base, _ *memdriver.Store) driver.Session { return deaf{s} }},
	{"marks no error", "rule 10 (methods)", "rule10/a-call-while-cut-off-fails", func(s base, _ *memdriver.Store) driver.Session { return unmarked{s} }},
	{"marks what is gone as passing", "rule 10 (methods)", "rule10/gone", func(s base, _ *memdriver.Store) driver.Session { return marksGone{s} }},
	{"answers after its end", "rule 10 (methods)", "rule10/a-closed", func(s base, _ *memdriver.Store) driver.Session { return answersAfterEnd{s} }},
	{"leaves a goroutine", "rule 11 (nothing outlives close)", "rule11/close-leaves", func(s base, _ *memdriver.Store) driver.Session {
		go func() { select {} }()
		return s
	}},
	{"leaves a goroutine for each watch", "rule 11 (nothing outlives close)", "rule11/a-watch", func(s base, _ *memdriver.Store) driver.Session { return leakyWatch{s} }},
	{"replaces by delete and create", "rule 12 (replace)", "rule12/(replace-changes|list-shows)", func(s base, _ *memdriver.Store) driver.Session { return twoSteps{s} }},
	{"shows no node while it replaces", "rule 12 (replace)", "rule12/list-shows", func(s base, _ *memdriver.Store) driver.Session { return &blinks{releasing: s} }},
	{"knows no old place", "rule 12 (replace)", "rule12/delete-takes-the-old", func(s base, _ *memdriver.Store) driver.Session { return forgetsOld{s} }},
	{"releases what it deletes", "rule 13 (release)", "rule13/delete-is", func(s base, _ *memdriver.Store) driver.Session { return releasesAll{s} }},
	{"releases at close", "rule 13 (release)", "rule13/close-is", func(s base, _ *memdriver.Store) driver.Session { return &releasesAtClose{releasing: s} }},
	{"releases out of order", "rule 13 (release)", "rule13/released-comes", func(s base, _ *memdriver.Store) driver.Session { return outOfOrder{s} }},
	{"reads no token", "read broken", "read", func(s base, _ *memdriver.Store) driver.Session { return readsNothing{s} }},
	{"walks by letters", "walk broken", "walk", func(s base, _ *memdriver.Store) driver.Session { return walksByLetters{s} }},
	{"is always alone, under locks", "locks broken", "locks/(one-writer|readers-and)",
		func(s base, _ *memdriver.Store) driver.Session { return alwaysAlone{s} }},
	{"learns of its end late, under locks", "locks broken", "locks/a-holder-cut-off",
		func(s base, _ *memdriver.Store) driver.Session { return newLateEnd(s) }},
	{"cancels badly, under locks", "locks broken", "locks/a-wait",
		func(s base, _ *memdriver.Store) driver.Session { return orphans{s} }},
	{"hangs", "rule 7 (delete) broken: the driver hung", "rule07/delete-removes", func(s base, _ *memdriver.Store) driver.Session { return hangs{s} }},
}

const sabotageEnv = "DLOCKTEST_SABOTAGE"

// releasingConfig is the configuration of a memdriver that also implements Releaser.
func releasingConfig(wrap func(base, *memdriver.Store) driver.Session) Config {
	var stores sync.Map // *memdriver.Store to *releases
	return configOf(func(s driver.Session, st *memdriver.Store) driver.Session {
		given, _ := stores.LoadOrStore(st, &releases{nodes: make(map[released]bool)})
		return wrap(newReleasing(s, given.(*releases)), st)
	})
}

func TestSoundReleaserPasses(t *testing.T) {
	Run(t, releasingConfig(func(s base, _ *memdriver.Store) driver.Session { return s }))
}

// TestSabotaged runs in a process of its own, for one of the sabotages.
func TestSabotaged(t *testing.T) {
	name := os.Getenv(sabotageEnv)
	if name == "" {
		t.Skip("runs for TestEverySabotageIsSeen only")
	}
	for _, s := range sabotages {
		if s.name == name {
			closeGrace = 3 * time.Second
			config := releasingConfig(s.wrap)
			config.Timeout = time.Second
			Run(t, config)
			return
		}
	}
	t.Fatalf("no sabotage %q", name)
}

func TestEverySabotageIsSeen(t *testing.T) {
	for _, s := range sabotages {
		t.Run(strings.NewReplacer(" ", "-", ",", "").Replace(s.name), func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSabotaged$/^"+strings.ReplaceAll(s.cases, "/", "/^"), "-test.v")
			cmd.Env = append(os.Environ(), sabotageEnv+"="+s.name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("the kit passed a driver that %s (%v):\n%s", s.name, err, out)
			}
			for _, want := range []string{s.rule, "broken: ", "why it matters: "} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the kit's output on a driver that %s does not contain %q:\n%s", s.name, want, out)
				}
			}
			if strings.Contains(string(out), "panic: ") || strings.Contains(string(out), "DATA RACE") {
				t.Errorf("the kit's output on a driver that %s:\n%s", s.name, out)
			}
			t.Log(firstBroken(string(out)))
		})
	}
}

func firstBroken(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "broken: ") {
			return line[:min(len(line), 400)]
		}
	}
	return ""
}

type byName struct{ *releasing }

func (s byName) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.releasing.List(ctx, queue)
	slices.SortFunc(nodes, func(a, b driver.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, err
}

type cached struct {
	*releasing
	mu    sync.Mutex
	nodes []driver.Node
	age   int
}

func (s *cached) List(ctx context.Context, queue string) ([]driver.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.age++; s.age%4 == 2 {
		return s.nodes, nil
	}
	nodes, err := s.releasing.List(ctx, queue)
	s.nodes = nodes
	return nodes, err
}

type listsForeign struct{ *releasing }

func (s listsForeign) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.releasing.List(ctx, queue)
	if _, gone := s.Read(ctx, queue, "readme"); gone == nil {
		nodes = append([]driver.Node{{Name: "readme"}}, nodes...)
	}
	return nodes, err
}

type takesSlash struct{ *releasing }

func (s takesSlash) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	return s.releasing.Create(ctx, queue, strings.ReplaceAll(prefix, "/", "."), data)
}

type noEpoch struct{ *releasing }

func (s noEpoch) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	p.Epoch = 0
	return p, err
}

func (s noEpoch) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.releasing.List(ctx, queue)
	for i := range nodes {
		nodes[i].Epoch = 0
	}
	return nodes, err
}

type seqToken struct{ *releasing }

func (s seqToken) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	p.Token = p.Seq
	return p, err
}

type orphans struct{ *releasing }

func (s orphans) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(context.WithoutCancel(ctx), queue, prefix, data)
	time.Sleep(100 * time.Microsecond) // the reply takes its time
	if ctx.Err() != nil {
		return driver.Place{}, ctx.Err()
	}
	return p, err
}

type sweeper struct {
	*releasing
	store *memdriver.Store
}

func (s sweeper) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	if errors.Is(err, driver.ErrUnavailable) {
		nodes, _ := s.List(ctx, queue)
		for _, n := range withPrefix(nodes, prefix) {
			s.store.RemoveNode(queue, n.Name)
		}
	}
	return p, err
}

type racyAlone struct{ *releasing }

func (s racyAlone) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	before, err := s.List(ctx, queue)
	if err != nil {
		return driver.Place{}, err
	}
	runtime.Gosched()
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	p.Alone = len(before) == 0
	return p, err
}

type alwaysAlone struct{ *releasing }

func (s alwaysAlone) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	p.Alone = true
	return p, err
}

type blindToGone struct{ *releasing }

func (s blindToGone) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	nodes, err := s.List(ctx, queue)
	if name != "" && err == nil && !slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name }) {
		return make(chan driver.Cause), nil
	}
	return s.releasing.Watch(ctx, queue, name)
}

// lateArming watches what it finds when it gets round to it.
type lateArming struct{ *releasing }

func (s lateArming) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	nodes, err := s.List(ctx, queue)
	if err != nil || name != "" && !slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name }) {
		return s.releasing.Watch(ctx, queue, name)
	}
	out := make(chan driver.Cause)
	go func() {
		time.Sleep(time.Millisecond)
		if name != "" {
			nodes, _ := s.List(ctx, queue)
			if !slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name }) {
				return // it went before the watch was armed: nobody tells
			}
		}
		if in, err := s.releasing.Watch(ctx, queue, name); err == nil {
			<-in
		}
		close(out)
	}()
	return out, nil
}

type openAtEnd struct{ *releasing }

func (s openAtEnd) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, err := s.releasing.Watch(ctx, queue, name)
	out := make(chan driver.Cause)
	go func() {
		if <-in; s.Err() == nil {
			close(out)
		}
	}()
	return out, err
}

type byNameDelete struct {
	*releasing
	store *memdriver.Store
}

func (s byNameDelete) Delete(ctx context.Context, queue string, p driver.Place) error {
	if err := driver.CheckQueue(queue); err != nil {
		return err
	}
	if err := s.Err(); err != nil {
		return err
	}
	if !s.store.RemoveNode(queue, p.Name) {
		return driver.ErrGone
	}
	return nil
}

type neverGone struct{ *releasing }

func (s neverGone) Delete(ctx context.Context, queue string, p driver.Place) error {
	err := s.releasing.Delete(ctx, queue, p)
	if errors.Is(err, driver.ErrGone) {
		return nil
	}
	return err
}

type timersOnly struct{ *releasing }

func (s timersOnly) Err() error {
	if closed(s.Done()) {
		return s.releasing.Err()
	}
	return nil
}

// lateEnd believes in its session for as long again as the store does.
type lateEnd struct {
	*releasing
	done chan struct{}
}

func newLateEnd(s base) driver.Session {
	l := lateEnd{s, make(chan struct{})}
	go func() {
		<-s.Done()
		time.Sleep(soundTimeout)
		close(l.done)
	}()
	return l
}

func (s lateEnd) Done() <-chan struct{} { return s.done }

func (s lateEnd) Err() error {
	if closed(s.done) {
		return s.releasing.Err()
	}
	return nil
}

type undead struct {
	*releasing
	asked atomic.Int32
}

func (s *undead) Err() error {
	err := s.releasing.Err()
	if err != nil && s.asked.Add(1) > 6 {
		return nil
	}
	return err
}

type lazyClose struct{ *releasing }

func (s lazyClose) Close() error {
	go func() {
		time.Sleep(20 * time.Millisecond)
		_ = s.releasing.Close()
	}()
	return nil
}

type deletesFirst struct {
	*releasing
	store *memdriver.Store
	mu    sync.Mutex
	names []string
}

func (s *deletesFirst) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, p.Name)
	return p, err
}

func (s *deletesFirst) Close() error {
	s.mu.Lock()
	for _, name := range s.names {
		s.store.RemoveNode("q", name)
	}
	s.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	return s.releasing.Close()
}

type closesOnce struct {
	*releasing
	closed atomic.Bool
}

func (s *closesOnce) Close() error {
	if s.closed.Swap(true) {
		return errors.New("closed already")
	}
	return s.releasing.Close()
}

type deaf struct{ *releasing }

func (s deaf) List(ctx context.Context, queue string) ([]driver.Node, error) {
	return s.releasing.List(context.WithoutCancel(ctx), queue)
}

type unmarked struct{ *releasing }

func (s unmarked) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.releasing.List(ctx, queue)
	if err != nil && !errors.Is(err, driver.ErrName) {
		return nil, errors.New("connection refused")
	}
	return nodes, err
}

type marksGone struct{ *releasing }

func (s marksGone) Delete(ctx context.Context, queue string, p driver.Place) error {
	err := s.releasing.Delete(ctx, queue, p)
	if errors.Is(err, driver.ErrGone) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}

type answersAfterEnd struct{ *releasing }

func (s answersAfterEnd) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.releasing.List(ctx, queue)
	if errors.Is(err, driver.ErrSessionEnded) {
		return nil, nil
	}
	return nodes, err
}

type leakyWatch struct{ *releasing }

func (s leakyWatch) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	go func() { <-s.Done() }()
	return s.releasing.Watch(ctx, queue, name)
}

type twoSteps struct{ *releasing }

func (s twoSteps) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	if err := s.Delete(ctx, queue, p); err != nil {
		return driver.Place{}, err
	}
	return s.Create(ctx, queue, prefix, nil)
}

type blinks struct {
	*releasing
	replacing atomic.Bool
}

func (s *blinks) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	s.replacing.Store(true)
	defer s.replacing.Store(false)
	time.Sleep(time.Millisecond)
	return s.releasing.Replace(ctx, queue, p, prefix)
}

func (s *blinks) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.releasing.List(ctx, queue)
	if s.replacing.Load() && len(nodes) > 0 {
		return nodes[1:], err
	}
	return nodes, err
}

type forgetsOld struct{ *releasing }

func (s forgetsOld) Delete(ctx context.Context, queue string, p driver.Place) error {
	nodes, err := s.List(ctx, queue)
	if err == nil && !has(nodes, p.Node) {
		return driver.ErrGone
	}
	return s.releasing.Delete(ctx, queue, p)
}

type releasesAll struct{ *releasing }

func (s releasesAll) Delete(ctx context.Context, queue string, p driver.Place) error {
	s.given.set(released{queue, p.Seq, p.Epoch}, true)
	return s.releasing.Delete(ctx, queue, p)
}

type releasesAtClose struct {
	*releasing
	mu     sync.Mutex
	places []driver.Place
}

func (s *releasesAtClose) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = append(s.places, p)
	return p, err
}

func (s *releasesAtClose) Close() error {
	s.mu.Lock()
	for _, p := range s.places {
		s.given.set(released{"q", p.Seq, p.Epoch}, true)
	}
	s.mu.Unlock()
	return s.releasing.Close()
}

// outOfOrder tells some watchers late.
type outOfOrder struct{ *releasing }

func (s outOfOrder) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, err := s.releasing.Watch(ctx, queue, name)
	if _, seq, _ := driver.ParseName(name); err != nil || seq%2 == 0 {
		return in, err
	}
	out := make(chan driver.Cause, 1)
	go func() {
		cause, ok := <-in
		time.Sleep(5 * time.Millisecond)
		if ok {
			out <- cause
		}
		close(out)
	}()
	return out, nil
}

type readsNothing struct{ *releasing }

func (s readsNothing) Read(ctx context.Context, queue, name string) (driver.Info, error) {
	info, err := s.releasing.Read(ctx, queue, name)
	info.Token = 0
	return info, err
}

type walksByLetters struct{ *releasing }

func (s walksByLetters) Walk(ctx context.Context, prefix string) ([]string, error) {
	all, err := s.releasing.Walk(ctx, "")
	return slices.DeleteFunc(all, func(q string) bool { return !strings.HasPrefix(q, prefix) }), err
}

type hangs struct{ *releasing }

func (s hangs) Delete(context.Context, string, driver.Place) error { select {} }
