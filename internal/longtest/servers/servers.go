// Package servers makes the servers of a ZooKeeper ensemble fail: their
// processes, their disks, and the network between them.
package servers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

// Servers are the targets of one group of faults. No two faults of a group hit
// the same target.
type Servers struct {
	*zktest.Ensemble
	TB       testing.TB
	Random   *rand.Rand
	Leader   int // when the group began
	reserved map[string]bool
}

// New returns the targets for a new group of faults.
func New(t testing.TB, e *zktest.Ensemble, random *rand.Rand) *Servers {
	return &Servers{e, t, random, e.Leader(t), make(map[string]bool)}
}

// Fault is a kind of fault. Inject starts the fault, and describes its target.
// The function heal ends the fault. It is nil if no target was left.
type Fault struct {
	Name   string
	Alone  bool // never combined with other faults
	Inject func(*Servers) (heal func(), what string)
}

// Faults returns all faults, including disk faults if slowDisks is true.
func Faults(slowDisks bool) []Fault {
	if !slowDisks {
		return slices.Concat(processes, links)
	}
	return slices.Concat(processes, links, disks)
}

// Reserve claims a target for one fault of the group. It returns false if another
// fault has claimed it.
func (s *Servers) Reserve(what string) bool {
	was := s.reserved[what]
	s.reserved[what] = true
	return !was
}

// Between returns a random duration, more likely a short one.
func Between(r *rand.Rand, least, most time.Duration) time.Duration {
	x := r.Float64()
	return least + time.Duration(x*x*float64(most-least))
}

func (s *Servers) name(i int) string {
	if i == s.Leader {
		return fmt.Sprintf("server %d (the leader)", i)
	}
	return fmt.Sprintf("server %d", i)
}

func anyServer(*Servers, int) bool    { return true }
func follower(s *Servers, i int) bool { return i != s.Leader }
func leader(s *Servers, i int) bool   { return i == s.Leader }

var processes = []Fault{
	{"follower killed, started again", false, one(follower, "killed", (*zktest.Server).Kill, (*zktest.Server).Restart)},
	{"leader killed, started again", false, one(leader, "killed", (*zktest.Server).Kill, (*zktest.Server).Restart)},
	{"follower stopped (SIGSTOP)", false, one(follower, "stopped", (*zktest.Server).Pause, (*zktest.Server).Resume)},
	{"leader stopped (SIGSTOP)", false, one(leader, "stopped", (*zktest.Server).Pause, (*zktest.Server).Resume)},
	{"all servers killed and started again, one by one", true, func(s *Servers) (func(), string) {
		for _, server := range s.Servers {
			server.Kill()
			time.Sleep(Between(s.Random, 0, time.Second))
			server.Restart()
			s.WaitQuorum(s.TB)
		}
		return func() {}, "all servers killed one by one"
	}},
}

func one(may func(*Servers, int) bool, what string, fail, heal func(*zktest.Server)) func(*Servers) (func(), string) {
	return func(s *Servers) (func(), string) {
		for _, i := range s.Random.Perm(len(s.Servers)) {
			if may(s, i) && s.Reserve(fmt.Sprint("server ", i)) {
				fail(s.Servers[i])
				return func() { heal(s.Servers[i]) }, s.name(i) + " " + what
			}
		}
		return nil, ""
	}
}

var links = []Fault{
	{"follower cut off from all servers", false, cut(func(s *Servers, i int) { s.CutServer(i) })},
	{"leader cut off from all servers", false, cut(func(s *Servers, _ int) { s.CutServer(s.Leader) })},
	{"link between two followers cut", false, cut(func(s *Servers, i int) { s.CutLink(i, 3-i-s.Leader) })},
	{"link between the leader and a follower cut", false, cut(func(s *Servers, i int) { s.CutLink(s.Leader, i) })},
	{"link from leader to follower cut one way", false, cut(func(s *Servers, i int) { s.CutOneWay(s.Leader, i) })},
	{"link from follower to leader cut one way", false, cut(func(s *Servers, i int) { s.CutOneWay(i, s.Leader) })},
	{"leader cut off on the way to all followers", false, cut(func(s *Servers, i int) {
		s.CutOneWay(s.Leader, i)
		s.CutOneWay(s.Leader, 3-i-s.Leader)
	})},
	{"delay between servers", false, cut(func(s *Servers, _ int) {
		s.SetDelay(Between(s.Random, 20*time.Millisecond, 600*time.Millisecond))
	})},
}

// cut returns a fault for a random follower of three servers, at most once in
// each group.
func cut(fail func(s *Servers, follower int)) func(*Servers) (func(), string) {
	return func(s *Servers) (func(), string) {
		if !s.Reserve("links") {
			return nil, ""
		}
		i := (s.Leader + 1 + s.Random.IntN(2)) % 3
		fail(s, i)
		return s.Heal, fmt.Sprintf("network of leader %d and follower %d", s.Leader, i)
	}
}

var disks = []Fault{
	{"slow disk of one server", false, slow(anyServer)},
	{"slow disk of the leader", false, slow(leader)},
	{"slow disks of all servers", false, slow(nil)},
}

func slow(may func(*Servers, int) bool) func(*Servers) (func(), string) {
	return func(s *Servers) (func(), string) {
		if !s.Reserve("disks") {
			return nil, ""
		}
		d, slowed := Between(s.Random, 100*time.Millisecond, 1500*time.Millisecond), []int{}
		for _, i := range s.Random.Perm(len(s.Servers)) {
			if may == nil || may(s, i) && len(slowed) == 0 {
				s.Servers[i].SetDiskDelay(d)
				slowed = append(slowed, i)
			}
		}
		return func() {
			for _, i := range slowed {
				s.Servers[i].SetDiskDelay(0)
			}
		}, fmt.Sprintf("disk slower by %v: servers %v", d.Round(time.Millisecond), slowed)
	}
}
