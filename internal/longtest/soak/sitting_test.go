//go:build linux || darwin

package soak

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

// crew is who works. It is small, so that machines with two cores that do other things too can bear it.
//
// Some have no actors for the brief locks: only as long as none of its writes is under way, a session's reads are answered
// by a server that has lost the others, which must not prolong a lease.
var crew = []struct {
	timeout time.Duration // of the session
	actors  int
	direct  bool // reaches the servers without proxies between
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
	seqLimit       = 100 // after which the sequences of a queue start over
)

const crewName = "crew" // of its own journal

// sitting is the crew at work while every kind of fault strikes.
type sitting struct {
	t        *testing.T
	ensemble *zktest.Ensemble
	random   *rand.Rand
	seed     uint64
	number   int
	chroot   string
	dir      string // of the journals and counters
	journal  *journal
	members  []*member
	guard    *guard
	figures  *figures

	leader  int // when the present group of faults began
	claimed map[string]bool
}

// sit plays one sitting and judges it. Its journals stay in dir if something was wrong.
func sit(t *testing.T, e *zktest.Ensemble, seed uint64, number int, dir string, f *figures) {
	s := &sitting{t: t, ensemble: e, seed: seed, number: number, dir: dir, figures: f,
		random: source(seed, number), chroot: fmt.Sprintf("/soak%d", number)}
	s.open()
	s.work()
	s.close()
	s.judge()
}

// complain reports something that must not be.
func (s *sitting) complain(format string, args ...any) {
	s.t.Helper()
	s.figures.violations++
	s.t.Errorf("sitting %d: %s", s.number, fmt.Sprintf(format, args...))
}

func (s *sitting) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *sitting) open() {
	var err error
	s.journal, err = newJournal(filepath.Join(s.dir, crewName+".journal"))
	s.must(err)
	s.guard, err = newGuard()
	s.must(err)
	s.t.Cleanup(s.guard.close)
	for i := range crew {
		s.enlist(i)
	}
	s.await("everybody is at work", s.everybodyGains())
}

// enlist makes a member.
func (s *sitting) enlist(i int) {
	m := &member{name: fmt.Sprintf("w%d", i), timeout: crew[i].timeout, actors: crew[i].actors, guard: s.guard, dir: s.dir}
	m.addrs = s.ensemble.Addrs()
	if !crew[i].direct {
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

func (s *sitting) begin(m *member) error {
	return m.start(s.chroot, seqLimit, s.seed<<16+uint64(s.number)<<8)
}

// await polls until ok, for a time that is generous.
func (s *sitting) await(what string, ok func() bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	for ; !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			s.t.Fatalf("sitting %d: not within %v: %s", s.number, patience, what)
		}
	}
	return time.Since(began)
}

// everybodyGains returns what tells whether each member with actors has got a lock since now. The others only ask for the long
// locks, for which they may have to wait although everything is well.
func (s *sitting) everybodyGains() func() bool {
	was := make([]uint64, len(s.members))
	for i, m := range s.members {
		was[i] = m.gained()
	}
	return func() bool {
		for i, m := range s.members {
			if m.actors > 0 && m.gained() == was[i] {
				return false
			}
		}
		return true
	}
}

// work injects all kinds of faults, a few at a time.
func (s *sitting) work() {
	kinds := kindsHere()
	s.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for len(kinds) > 0 {
		kinds = s.group(kinds)
	}
	// A slow machine may take its time, as long as every member gets on.
	for *faults == "" && !s.longEnough() {
		s.await("every member gets a lock", s.everybodyGains())
	}
}

// longEnough reports whether so many locks were granted that the sequences of
// several queues must have started over.
func (s *sitting) longEnough() bool {
	var sum uint64
	for _, m := range s.members {
		sum += m.gained()
	}
	return sum > 8*seqLimit
}

// group injects some of these faults, heals them and sees that everybody gets on. It returns those that are left.
func (s *sitting) group(kinds []faultKind) (left []faultKind) {
	s.leader = s.ensemble.Leader(s.t)
	s.claimed = make(map[string]bool)
	s.spread()
	g := s.strike(kinds)
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

// struck is what was injected at about the same time.
type struck struct {
	what        []string
	heals, last []func() // last: after the others
	alone       bool
	left        []faultKind // what was not injected
}

// strike injects as many of these faults as it draws, one after the other.
func (s *sitting) strike(kinds []faultKind) (g struck) {
	size := 3 + s.random.IntN(3)
	for _, k := range kinds {
		if len(g.what) >= size || g.alone || k.alone && len(g.what) > 0 {
			g.left = append(g.left, k)
			continue
		}
		heal, what := k.inject(s)
		if heal == nil { // nobody is left whom it could hit now
			g.left = append(g.left, k)
			continue
		}
		s.journal.note(event{Kind: injected, At: now(), How: k.name, Told: what})
		s.figures.injected[k.name]++
		g.what, g.alone = append(g.what, what), k.alone
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

// spread sends each member to a server that it draws: after a while all of them would be on the server that has failed
// least, and what happens to the others would disturb nobody.
func (s *sitting) spread() {
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
	s.await("everybody got on after moving to other servers", s.everybodyGains())
}

// howLong draws how long faults last: for less than a session, or for longer than any.
func (s *sitting) howLong() time.Duration {
	if s.random.IntN(2) == 0 {
		return between(s.random, 500*time.Millisecond, 4*time.Second)
	}
	return longestTimeout + between(s.random, 500*time.Millisecond, 2*time.Second)
}

// recover sees that the servers find each other and that everybody gets a lock again.
func (s *sitting) recover(after string) {
	gains := s.everybodyGains()
	began := time.Now()
	s.journal.note(event{Kind: healed, At: now()})
	s.ensemble.WaitQuorum(s.t)
	quorum := time.Since(began)
	s.await("everybody got on after "+after, gains)
	took := time.Since(began)
	s.figures.recovered(took, after)
	s.t.Logf("sitting %d, %v: %s: healed, the servers were one again after %v, everybody had got a lock after %v",
		s.number, time.Since(s.figures.began).Round(time.Second), after, quorum.Round(time.Millisecond), took.Round(time.Millisecond))
}

// close has everybody finish and sees that nothing is left.
func (s *sitting) close() {
	defer s.surveyIfLate()()
	for _, m := range s.members {
		s.must(m.order("finish"))
	}
	for _, m := range s.members {
		if err := m.dismissed(); err != nil {
			s.complain("%s: %v\n%s", m.id(), err, m.stderr())
		}
	}
	s.must(s.journal.close())
	for i := range s.ensemble.Servers { // also where servers have gone apart
		s.await(fmt.Sprintf("only queues are left on server %d", i), func() bool { return len(s.contenders(i)) == 0 })
	}
	s.await("no watch is left", func() bool {
		var watches int64
		for _, server := range s.ensemble.Servers {
			watches += server.Watches()
		}
		return watches == 0
	})
}

// surveyIfLate has the servers asked if what is to come takes long, until stop is called.
func (s *sitting) surveyIfLate() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
		case <-time.After(patience / 4):
			s.survey()
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// survey tells what each server has to say of the queues: servers may have gone apart.
func (s *sitting) survey() {
	for i, server := range s.ensemble.Servers {
		conn, end, err := zktest.Connect(longestTimeout, server.Addr())
		if err != nil {
			s.t.Logf("survey: server %d: %v", i, err)
			continue
		}
		for _, name := range lockNames {
			path := s.chroot + "/" + name
			nodes, _, err := conn.Children(path)
			s.t.Logf("survey: server %d: %s: %v (error: %v)", i, path, nodes, err)
			for _, n := range nodes {
				if there, stat, err := conn.Exists(path + "/" + n); err == nil && there {
					s.t.Logf("survey: server %d: %s/%s: made by %#x, of session %#x", i, path, n, stat.Czxid, uint64(stat.EphemeralOwner))
				}
			}
		}
		end()
	}
}

// contenders lists what a server has below the queues.
func (s *sitting) contenders(server int) (left []string) {
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
