//go:build linux || darwin

package soak

import (
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

// reserveMember picks a random member that satisfies may and that no other
// fault of the group affects. It returns nil if there is none.
func (s *round) reserveMember(may func(*member) bool) *member {
	for _, i := range s.random.Perm(len(s.members)) {
		if m := s.members[i]; may(m) && s.reserve(m.name) {
			return m
		}
	}
	return nil
}

func anyMember(*member) bool { return true }
func proxied(m *member) bool { return m.proxies != nil }

const stoppedAtWrite = "client stopped between its last look and its write"

// clientFaults hit worker processes.
var clientFaults = []faultKind{
	{name: "client stopped (SIGSTOP) past its session", inject: func(s *round) (func(), string) {
		return s.stopMember(func(m *member) time.Duration {
			return m.timeout + between(s.random, 200*time.Millisecond, 2*time.Second)
		})
	}},
	{name: "client stopped (SIGSTOP) for about its lease", inject: func(s *round) (func(), string) {
		return s.stopMember(func(m *member) time.Duration { return m.timeout/2 + between(s.random, 0, m.timeout/2) })
	}},
	{name: "client stopped (SIGSTOP) for a moment, again and again", inject: stopAgainAndAgain},
	{name: stoppedAtWrite, alone: true, inject: stopAtWrite},
	{name: "client killed, another one started", inject: killMember},
}

// stopMember stops a worker with SIGSTOP for a while. A timer resumes it, and
// the returned function waits for that.
func (s *round) stopMember(howLong func(*member) time.Duration) (func(), string) {
	m := s.reserveMember(anyMember)
	if m == nil {
		return nil, ""
	}
	d := howLong(m)
	s.must(m.signal(syscall.SIGSTOP))
	done := make(chan error, 1)
	time.AfterFunc(d, func() { done <- m.signal(syscall.SIGCONT) })
	return func() { s.must(<-done) }, fmt.Sprintf("%s stopped for %v of %v", m.id(), d.Round(time.Millisecond), m.timeout)
}

func stopAgainAndAgain(s *round) (func(), string) {
	m := s.reserveMember(anyMember)
	if m == nil {
		return nil, ""
	}
	pauses := make([]time.Duration, 12)
	for i := range pauses {
		pauses[i] = between(s.random, 10*time.Millisecond, m.timeout/3)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for _, d := range pauses {
			stopped := m.signal(syscall.SIGSTOP)
			time.Sleep(d)
			err = errors.Join(err, stopped, m.signal(syscall.SIGCONT))
			time.Sleep(d / 2)
		}
		done <- err
	}()
	return func() { s.must(<-done) }, m.id() + " stopped for a moment again and again"
}

func killMember(s *round) (func(), string) {
	m := s.reserveMember(anyMember)
	if m == nil {
		return nil, ""
	}
	s.must(m.kill())
	return func() { s.must(s.begin(m)) }, m.id() + " killed"
}

// stopAtWrite stops a worker between its last check of the lock and its write.
// Meanwhile another worker acquires the lock and writes, so that only a fencing
// token prevents a lost update.
func stopAtWrite(s *round) (func(), string) {
	m := s.reserveMember(func(m *member) bool { return m.actors > 0 })
	name := briefLocks[s.random.IntN(len(briefLocks)-1)]
	s.must(m.order("halt " + name))
	text, err := m.awaitLine("halting")
	if errors.Is(err, errNotSaid) {
		s.notWithin(err.Error())
		return nil, ""
	}
	s.must(err)
	token, err := strconv.ParseInt(text, 10, 64)
	s.must(err)
	s.must(m.signal(syscall.SIGSTOP))
	s.await("a worker has stopped", func() bool { return stopped(m.cmd.Process.Pid) })
	s.must(m.order("write")) // waits in the pipe until the worker is resumed
	checked, unchecked := checkedCounter(s.dir, name), uncheckedCounter(s.dir, name)
	before, err := unchecked.read()
	s.must(err)
	s.await("another worker writes under the lock of a worker that is stopped", func() bool {
		now, err := unchecked.read()
		s.must(err)
		with, err := checked.read()
		s.must(err)
		return now.Writes > before.Writes && with.Token > token
	})
	s.must(m.signal(syscall.SIGCONT))
	if s.diverged() {
		return nil, ""
	}
	wrote, err := m.awaitLine("wrote")
	s.must(err)
	if wrote != "false" {
		s.violation("%s was stopped with token %d past its session, and the counter that checks took its write", m.id(), token)
	}
	return func() {}, fmt.Sprintf("%s stopped just before it wrote under %s", m.id(), name)
}

var linkFaults = []faultKind{
	{name: "client cut off from all servers", inject: links(func(s *round, m *member) string {
		m.each((*zktest.Proxy).Cut)
		return "cut off"
	})},
	{name: "client cut off on the way to the servers", inject: links(func(s *round, m *member) string {
		m.each(func(p *zktest.Proxy) { p.CutOneWay(testenv.ToServer) })
		return "cut off on the way to the servers"
	})},
	{name: "client cut off on the way back", inject: links(func(s *round, m *member) string {
		m.each(func(p *zktest.Proxy) { p.CutOneWay(testenv.ToClient) })
		return "cut off on the way back"
	})},
	{name: "client cut off from one server", inject: links(func(s *round, m *member) string {
		i := m.connected()
		m.proxies[i].Cut()
		return fmt.Sprintf("cut off from server %d", i)
	})},
	{name: "client's connections broken", inject: links(func(s *round, m *member) string {
		m.each((*zktest.Proxy).DropConnections)
		return "connections broken"
	})},
	{name: "delay of a client", inject: links(func(s *round, m *member) string {
		d := between(s.random, 20*time.Millisecond, m.timeout)
		m.each(func(p *zktest.Proxy) { p.SetDelay(d) })
		return fmt.Sprintf("delay of %v", d.Round(time.Millisecond))
	})},
	{name: "requests lost", inject: links(func(s *round, m *member) string {
		m.lose(s, (*zktest.Proxy).LoseRequest)
		return "requests lost"
	})},
	{name: "replies lost", inject: links(func(s *round, m *member) string {
		m.lose(s, (*zktest.Proxy).LoseReply)
		return "replies lost"
	})},
	{name: "replies held back", inject: links(func(s *round, m *member) string {
		m.each(func(p *zktest.Proxy) { p.HoldReplies(zktest.Op(zktest.OpMulti)) })
		return "replies held back"
	})},
	{name: "requests held back", inject: links(func(s *round, m *member) string {
		m.each(func(p *zktest.Proxy) { p.HoldRequests(zktest.Op(zktest.OpMulti)) })
		return "requests held back"
	})},
}

func links(hit func(*round, *member) string) func(*round) (func(), string) {
	return func(s *round) (func(), string) {
		m := s.reserveMember(proxied)
		if m == nil {
			return nil, ""
		}
		return m.heal, m.id() + " " + hit(s, m)
	}
}

func (m *member) each(f func(*zktest.Proxy)) {
	for _, p := range m.proxies {
		f(p)
	}
}

// connected returns the index of the server that the member is connected to.
func (m *member) connected() int {
	for i, p := range m.proxies {
		if p.Connections() > 0 {
			return i
		}
	}
	return 0
}

// lose makes each of the member's proxies lose several requests or replies. The
// lose argument is the proxy method that does so.
func (m *member) lose(s *round, lose func(*zktest.Proxy, func(int32) bool) <-chan struct{}) {
	for range 3 + s.random.IntN(6) {
		m.each(func(p *zktest.Proxy) {
			lose(p, zktest.Op(zktest.OpMulti, zktest.OpDelete, zktest.OpGetChildren2, zktest.OpGetData, zktest.OpSync))
		})
	}
}
