//go:build linux || darwin

package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/longtest/servers"
	"github.com/dlock-go/dlock/internal/longtest/survey"
	"github.com/dlock-go/dlock/internal/zktest"
)

// Workers without actors seldom write, and reads from a cut-off server must not
// prolong leases.
var team = []struct {
	timeout time.Duration // session timeout
	actors  int           // how many goroutines take locks briefly
	direct  bool          // connects without proxies
}{
	{2 * time.Second, 3, false},
	{2 * time.Second, 0, false},
	{3 * time.Second, 3, false},
	{3 * time.Second, 0, false},
	{4 * time.Second, 3, false},
	{3 * time.Second, 3, true},
}

const (
	longestTimeout = 4 * time.Second
	seqLimit       = 100 // sequence number after which a queue starts over
)

// round is a period in which every kind of fault is injected once.
type round struct {
	t        *testing.T
	ensemble *zktest.Ensemble
	random   *rand.Rand
	seed     uint64
	number   int
	chroot   string
	dir      string // for counters and workers' files
	members  []*member
	figures  *figures

	targets *servers.Servers // targets of the current group of faults

	// stuck lists what was late. Unless the servers have diverged, the lock is
	// to blame.
	stuck       []string
	differences []string // how the servers have diverged
	lastSurvey  string
}

// playRound returns true if the servers have diverged and the ensemble is
// unusable.
func playRound(t *testing.T, e *zktest.Ensemble, seed uint64, number int, dir string, f *figures) (diverged bool) {
	s := &round{t: t, ensemble: e, seed: seed, number: number, dir: dir, figures: f,
		random: source(seed, number), chroot: fmt.Sprintf("/soak%d", number)}
	s.open()
	s.work()
	s.close()
	for _, wrong := range s.judge() {
		s.violation("%s", wrong)
	}
	if s.diverged() {
		f.diverged++
		fmt.Print(s.divergedVerdict())
	}
	return s.diverged()
}

func (s *round) divergedVerdict() string {
	return fmt.Sprintf("round %d: the ensemble has diverged, so that this is no fault of the lock:\n  %s\n%s\n%v",
		s.number, strings.Join(s.stuck, "\n  "), strings.Join(s.differences, "\n"), s.lastSurvey)
}

func (s *round) violation(format string, args ...any) {
	s.t.Helper()
	s.figures.violations++
	s.t.Errorf("round %d: %s", s.number, fmt.Sprintf(format, args...))
}

func (s *round) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *round) open() {
	for i := range team {
		s.addMember(i)
	}
	s.await("every member acquires a lock at the beginning", s.allAcquire())
}

func (s *round) addMember(i int) {
	m := &member{name: fmt.Sprintf("w%d", i), timeout: team[i].timeout, actors: team[i].actors, dir: s.dir}
	m.addrs = s.ensemble.Addrs()
	if !team[i].direct {
		m.addrs = nil
		for _, addr := range s.ensemble.Addrs() {
			p := zktest.NewProxy(s.t, addr)
			m.proxies, m.addrs = append(m.proxies, p), append(m.addrs, p.Addr())
		}
	}
	s.members = append(s.members, m)
	s.must(s.begin(m))
	s.t.Cleanup(func() { m.cmd.Process.Kill() })
}

func (s *round) begin(m *member) error {
	return m.start(s.chroot, seqLimit, s.seed<<16+uint64(s.number)<<8)
}

func (s *round) await(what string, ok func() bool) {
	s.t.Helper()
	began := time.Now()
	for ; !s.diverged() && !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > waitLimit {
			s.notWithin(fmt.Sprintf("not within %v: %s", waitLimit, what))
		}
	}
}

// If notWithin returns, the servers have diverged and the round must end.
func (s *round) notWithin(what string) {
	s.t.Helper()
	s.stuck = append(s.stuck, what)
	if !s.diverged() {
		s.findDivergence()
	}
	if !s.diverged() {
		s.t.Fatalf("round %d: %s", s.number, what)
	}
}

// The result of allAcquire ignores members that contend only for long locks.
func (s *round) allAcquire() func() bool {
	was := make([]uint64, len(s.members))
	for i, m := range s.members {
		was[i] = m.acquired()
	}
	return func() bool {
		for i, m := range s.members {
			if m.actors > 0 && m.acquired() == was[i] {
				return false
			}
		}
		return true
	}
}

func (s *round) work() {
	kinds := kindsHere()
	s.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for len(kinds) > 0 && !s.diverged() {
		kinds = s.injectGroup(kinds)
	}
	// A slow machine takes longer, which is no failure while all members
	// acquire locks.
	for *faults == "" && !s.longEnough() && !s.diverged() {
		s.await("every member gets a lock", s.allAcquire())
	}
}

// longEnough reports whether the sequence numbers of several queues have
// probably started over.
func (s *round) longEnough() bool {
	var sum uint64
	for _, m := range s.members {
		sum += m.acquired()
	}
	return sum > 8*seqLimit
}

func (s *round) injectGroup(kinds []faultKind) (left []faultKind) {
	s.targets = servers.New(s.t, s.ensemble, s.random)
	s.distribute()
	g := s.inject(kinds)
	if !g.alone {
		time.Sleep(s.howLong())
	}
	s.random.Shuffle(len(g.heals), func(i, j int) { g.heals[i], g.heals[j] = g.heals[j], g.heals[i] })
	for _, heal := range append(g.heals, g.last...) {
		heal()
	}
	s.recover(strings.Join(g.what, "; "))
	return g.left
}

type injection struct {
	what        []string
	heals, last []func() // last run after heals
	alone       bool
	left        []faultKind // not injected
}

func (s *round) inject(kinds []faultKind) (g injection) {
	size := 3 + s.random.IntN(3)
	for _, k := range kinds {
		if len(g.what) >= size || g.alone || k.alone && len(g.what) > 0 {
			g.left = append(g.left, k)
			continue
		}
		heal, what := k.inject(s)
		if heal == nil { // no target left
			g.left = append(g.left, k)
			continue
		}
		s.figures.injected[k.name]++
		g.what, g.alone = append(g.what, k.name+": "+what), k.alone
		if k.last {
			g.last = append(g.last, heal)
		} else {
			g.heals = append(g.heals, heal)
		}
		if !k.alone {
			time.Sleep(between(s.random, 0, 700*time.Millisecond))
		}
	}
	return g
}

// distribute spreads the members, which otherwise gather on the server with
// fewest faults.
func (s *round) distribute() {
	var here []*zktest.Proxy
	servers := s.random.Perm(len(s.ensemble.Servers))
	for i, m := range s.members {
		if m.proxies == nil {
			continue
		}
		server := servers[i%len(servers)]
		for j, p := range m.proxies {
			if j != server {
				p.Refuse()
				p.DropConnections()
			}
		}
		here = append(here, m.proxies[server])
	}
	s.await("the workers have moved to other servers", func() bool {
		return !slices.ContainsFunc(here, func(p *zktest.Proxy) bool { return p.Connections() == 0 })
	})
	for _, m := range s.members {
		m.heal()
	}
	s.await("every member acquires a lock after moving to another server", s.allAcquire())
}

// Half of the faults outlast every session timeout. In the others, some
// sessions survive.
func (s *round) howLong() time.Duration {
	if s.random.IntN(2) == 0 {
		return between(s.random, 500*time.Millisecond, 4*time.Second)
	}
	return longestTimeout + between(s.random, 500*time.Millisecond, 2*time.Second)
}

func (s *round) recover(after string) {
	acquired := s.allAcquire()
	began := time.Now()
	s.ensemble.WaitQuorum(s.t)
	quorum := time.Since(began)
	s.await("every member acquires a lock after "+after, acquired)
	took := time.Since(began)
	s.figures.recovered(took, after)
	s.t.Logf("round %d, %v: %s: healed, the servers had a quorum after %v, every member had acquired a lock after %v",
		s.number, time.Since(s.figures.began).Round(time.Second), after, quorum.Round(time.Millisecond), took.Round(time.Millisecond))
}

func (s *round) close() {
	s.finishWorkers()
	for i := range s.ensemble.Servers { // ask each, because they may differ
		s.await(fmt.Sprintf("only queues are left on server %d", i), func() bool { return len(s.nodesBelowQueues(i)) == 0 })
	}
	s.await("no watch is left", func() bool {
		var watches int64
		for _, server := range s.ensemble.Servers {
			watches += server.Watches()
		}
		return watches == 0
	})
}

// finishWorkers kills the remaining workers if diverged servers keep one from
// finishing.
func (s *round) finishWorkers() {
	for _, m := range s.members {
		if !s.diverged() {
			s.must(m.order("finish"))
		}
	}
	for _, m := range s.members {
		if s.diverged() {
			_ = m.kill() // it may have finished
			continue
		}
		switch err := m.awaitEnd(); {
		case errors.Is(err, errNotFinished):
			s.stuck = append(s.stuck, fmt.Sprintf("%s: %v\n%s", m.id(), err, m.stderr()))
			s.findDivergence()
		case err != nil:
			s.violation("%s: %v\n%s", m.id(), err, m.stderr())
		}
	}
}

func (s *round) findDivergence() {
	var queues []string
	for _, name := range lockNames {
		queues = append(queues, s.chroot+"/"+name)
	}
	s.differences, s.lastSurvey = survey.Find(s.ensemble, queues)
	if len(s.differences) == 0 {
		s.t.Logf("round %d: the servers have not diverged:\n%v", s.number, s.lastSurvey)
	}
}

func (s *round) diverged() bool { return len(s.differences) > 0 }

func (s *round) nodesBelowQueues(server int) (left []string) {
	queues := map[string]bool{s.chroot + "/b": true, s.chroot + "/long": true}
	for _, name := range lockNames {
		queues[s.chroot+"/"+name] = true
	}
	for _, path := range s.ensemble.Servers[server].Tree(s.t, s.chroot) {
		if !queues[path] {
			left = append(left, path)
		}
	}
	return left
}

func (s *round) judge() (wrong []string) {
	names, err := filepath.Glob(filepath.Join(s.dir, "*.faults"))
	s.must(err)
	s.figures.processes += len(names)
	for _, name := range names {
		text, err := os.ReadFile(name)
		s.must(err)
		for line := range strings.Lines(string(text)) {
			fault, err := strconv.Unquote(strings.TrimSpace(line))
			s.must(err)
			if rest, isStuck := strings.CutPrefix(fault, stuck); isStuck {
				s.stuck = append(s.stuck, rest)
			} else {
				wrong = append(wrong, filepath.Base(name)+": "+fault)
			}
		}
		if counts, err := os.ReadFile(strings.TrimSuffix(name, "faults") + "counts"); err == nil { // missing if the worker was killed
			s.must(s.figures.add(counts))
		}
	}
	for _, lock := range lockNames {
		checked, err := checkedCounter(s.dir, lock).read()
		s.must(err)
		unchecked, err := uncheckedCounter(s.dir, lock).read()
		s.must(err)
		if checked.lost() != 0 || checked.Twice != 0 {
			wrong = append(wrong, fmt.Sprintf("%s: lost updates, or one token for two: %+v", lock, checked))
		}
		s.figures.checked.add(checked)
		s.figures.unchecked.add(unchecked)
	}
	if s.diverged() {
		return wrong // without s.stuck: the servers are to blame
	}
	return append(wrong, s.stuck...)
}
