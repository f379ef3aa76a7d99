package dlocktest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

// Faults is a connector that stands before another one and plays faults on what passes: it delays
// requests, replies and the ends of watches, loses requests before the store has seen them and
// replies after it has carried them out, sends a Delete twice, closes watches early, refuses to
// connect, and ends sessions. It is for tests of what is built on locks, and of drivers:
//
//	faults := dlocktest.NewFaults(memdriver.New(), dlocktest.Rates{Seed: 7, LoseReplies: 0.01}.Decide)
//	client := dlock.OpenConnector(faults)
//
// # Guarantees
//
// What it makes of a driver that keeps the contract keeps the contract, whatever is decided. A
// Create whose reply is lost, or whose caller has given up, leaves no node: Faults removes it,
// also where the request arrives later (rule 4). A session that it ends has ended here before
// its nodes go (rule 8), because it is closed, and rule 9 says so. Released comes neither without
// a Release nor before an earlier end of another watch (rule 13). Close waits for everything that
// Faults has begun (rules 9 and 11). A session of Faults implements
// [driver.Replacer], [driver.Releaser], [driver.Reader] and [driver.Walker] exactly if the one
// behind it does.
//
// Faults waits on channels and timers only, so that it works in the bubbles of testing/synctest as
// it does outside. All methods, and those of its sessions, may be called from many goroutines.
//
// # Limits
//
// Faults stands outside the driver. It cannot stop a driver's heartbeats, so that a session that
// gets no request through lives on; to cut a session off, or to pause its process, takes the
// store's own means, such as those of memdriver. And it cannot prove how a driver recovers from a
// reply that the network has lost, because the driver behind it has got its reply:
// Config.LoseReply is for that.
type Faults struct {
	connector driver.Connector
	decide    Decide
	connects  atomic.Int64
	tally     tally

	mu       sync.Mutex
	sessions map[int]*faulty // that live
}

// Decide says what becomes of a request, of its reply, or of the end of a watch, when it is on
// its way; see [Request]. It is called from many goroutines at once, each of which carries one
// thing, and may take its time: a request waits until Decide has returned. It has to return soon
// after ctx has ended, which it does with the session, and, for the end of a watch, with the watch
// (for a Connect, with the ctx of the caller). For a Close it ends after two seconds, too. What is
// decided after that does not count.
type Decide func(ctx context.Context, r Request) Fault

// NewFaults returns a connector that makes the sessions of c and plays what decide says. Nil
// plays nothing but what the methods of Faults are told.
func NewFaults(c driver.Connector, decide Decide) *Faults {
	return &Faults{connector: c, decide: decide, sessions: make(map[int]*faulty)}
}

// Connect implements driver.Connector.
func (f *Faults) Connect(ctx context.Context) (driver.Session, error) {
	r := Request{Method: MethodConnect, Nth: 1}
	if err := ctx.Err(); err != nil {
		return nil, r.failed(err)
	}
	r.Session = int(f.connects.Add(1))
	if f.decide == nil {
		inner, err := f.connector.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return f.adopt(r.Session, inner).dressed(), nil
	}
	c := call[*faulty]{
		r:     r,
		ctx:   ctx,
		spawn: func(carry func()) bool { go carry(); return true },
		carry: func() (*faulty, bool, error) { return f.connect(ctx, r) },
		late:  func(s *faulty) { _ = s.Close() },
	}
	s, err := c.wait()
	if err != nil {
		return nil, err
	}
	return s.dressed(), nil
}

// connect is the way of a Connect to the store and back.
func (f *Faults) connect(ctx context.Context, r Request) (s *faulty, done bool, err error) {
	sent, err := f.meet(ctx, r)
	if err != nil {
		return nil, false, err
	}
	inner, err := f.connector.Connect(ctx)
	if err == nil {
		s, done = f.adopt(r.Session, inner), true
	}
	r.Stage, r.Err = StageReply, err
	answered, lost := f.meet(ctx, r)
	switch {
	case lost != nil && done:
		return nil, false, errors.Join(lost, s.Close())
	case lost != nil:
		return nil, false, lost
	case done && (sent.End || answered.End):
		s.end()
	}
	return s, done, err
}

// EndSession ends a session as [Fault.End] does, and returns when its nodes are gone. It returns
// what the session's Close returned, and nil where the session of that number has ended already
// or never was. Sessions are numbered from 1 in the order of the calls of Connect, see [Request].
func (f *Faults) EndSession(number int) error {
	f.mu.Lock()
	s := f.sessions[number]
	f.mu.Unlock()
	if s == nil {
		return nil
	}
	f.tally.ended.Add(1)
	return s.inner.Close()
}

// EndSessions ends all sessions that live. It returns when their nodes are gone.
func (f *Faults) EndSessions() {
	f.mu.Lock()
	var all []int
	for number := range f.sessions {
		all = append(all, number)
	}
	f.mu.Unlock()
	var wg sync.WaitGroup
	for _, number := range all {
		wg.Go(func() { _ = f.EndSession(number) })
	}
	wg.Wait()
}

// Behind returns the session behind one of Faults, for functions of a store that play faults on
// its own sessions. Any other session is returned as it is.
func Behind(s driver.Session) driver.Session {
	if f, ok := s.(interface{ behind() driver.Session }); ok {
		return f.behind()
	}
	return s
}
