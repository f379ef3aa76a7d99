package recipes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/brief"
)

// Contender is a holder or waiter in a lock's queue; see [RWMutex.Queue].
type Contender struct {
	Node  string
	Host  string // the client's [WithHostname]; empty if unknown
	Mode  Mode
	Holds bool // false if it waits
	// Units is how many units of a [Semaphore] the contender holds or waits
	// for. OfUnits is the semaphore's total as the contender's client gave it.
	// Both are zero for contenders of an [RWMutex].
	Units, OfUnits int
	// HeldSince is when the lock was granted to this contender. It is zero for
	// waiters, and for holders that belong to another Client than the caller's.
	HeldSince time.Time
	// The fields below are zero if the driver cannot read nodes or lacks
	// permission to read this one. Any client with write access can forge Token
	// and Record, as well as Node and Host above. Quote them before printing to
	// a terminal, as String does.
	Owner   string // the session, as the store names it
	Token   int64
	Created time.Time // by the store's clock; zero if unknown
	Record  Record
	// SessionLeft is how long the store keeps the session, and with it the
	// node, if it hears nothing more from the client. It is zero if the store
	// does not report it; ZooKeeper, for example, does not.
	SessionLeft time.Duration
}

// String describes the contender on one line. Unprintable text is quoted, and
// very long text is cut.
func (c Contender) String() string {
	verb := "waits"
	if c.Holds {
		verb = "holds"
	}
	line := fmt.Sprintf("%s %s, %v", printable(c.Node), verb, c.Mode)
	if c.Units > 0 {
		line += fmt.Sprintf(", %d of %d units", c.Units, c.OfUnits)
	}
	if c.Host != "" {
		line += ", host " + printable(c.Host)
	}
	if c.Token != 0 {
		line += fmt.Sprintf(", token %d", c.Token)
	}
	if c.Owner != "" {
		line += ", session " + printable(c.Owner)
	}
	if c.SessionLeft > 0 {
		line += fmt.Sprintf(" (%v left)", c.SessionLeft.Round(time.Millisecond))
	}
	if !c.Created.IsZero() {
		line += ", created " + c.Created.Format(time.RFC3339Nano)
	}
	if !c.HeldSince.IsZero() {
		line += ", held by this client since " + c.HeldSince.Format(time.RFC3339Nano)
	}
	if !c.Record.empty() {
		line += ", " + c.Record.String()
	}
	return line
}

// Queue returns the lock's holders and waiters in queue order. It makes one
// request, plus one per contender if the driver can read nodes. It is meant for
// diagnosis: the queue may have changed by the time Queue returns.
func (m *RWMutex) Queue(ctx context.Context) ([]Contender, error) {
	if err := m.queue.usable(ctx); err != nil {
		return nil, err
	}
	return m.queue.list(ctx)
}

func (q *queue) list(ctx context.Context) (contenders []Contender, err error) {
	err = q.ask(ctx, func(s *session) (err error) {
		contenders, err = s.contenders(ctx, q.name)
		return err
	})
	return contenders, err
}

// ask calls f with a session of the client, and names the queue in errors.
func (q *queue) ask(ctx context.Context, f func(s *session) error) error {
	if err := q.client.beginRequest(); err != nil {
		return lockError(q.name, err)
	}
	defer q.client.endCall()
	if q.client.live.Load() == nil {
		defer q.client.watchSilence().Stop()
	}
	err := ctx.Err()
	if err == nil {
		err = q.client.onSession(ctx, f)
	}
	if err != nil {
		return lockError(q.name, q.client.requestError(ctx, err))
	}
	return nil
}

func (s *session) contenders(ctx context.Context, queue string) ([]Contender, error) {
	nodes, err := s.List(ctx, queue)
	if err != nil {
		return nil, err
	}
	contenders := make([]Contender, 0, len(nodes))
	read := make(map[bool]bool) // whether a contender with that Holds was read
	for _, c := range listed(nodes, s.heldSince(queue)) {
		if err = nil; !read[c.Holds] || !brief.Is(ctx) {
			err = s.describe(ctx, queue, &c)
			read[c.Holds] = !errors.Is(err, driver.ErrGone)
		}
		switch {
		case errors.Is(err, driver.ErrGone): // removed since the queue was listed
		case err == nil, errors.Is(err, fs.ErrPermission): // leave the fields that need a read empty
			contenders = append(contenders, c)
		default:
			return nil, err
		}
	}
	return contenders, nil
}

// listed returns a Contender for each node, with only the fields that do not
// require reading the node.
func listed(nodes []driver.Node, since map[driver.Node]time.Time) []Contender {
	contenders := make([]Contender, len(nodes))
	var ahead tally
	for i, n := range nodes {
		w := wantOf(n)
		contenders[i] = Contender{Node: n.Name, Host: hostOf(n), Mode: w.mode(), Units: w.units.weight, OfUnits: w.units.of,
			Holds: w.holds(ahead), HeldSince: since[n]}
		ahead.add(n)
	}
	return contenders
}

func (s *session) describe(ctx context.Context, queue string, c *Contender) error {
	info, err := driver.Inspect(s.ofDriver()).Read(ctx, queue, c.Node)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return err
	}
	c.Owner, c.Token, c.Created, c.Record = info.Owner, info.Token, info.Created, parseRecord(info.Data)
	c.SessionLeft = info.SessionLeft
	return nil
}
