package redisdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/calls"
	"github.com/dlock-go/dlock/driver/watches"
)

var (
	_ driver.Session   = (*session)(nil)
	_ driver.Inspector = (*session)(nil)
)

type session struct {
	settings *settings
	id       string
	lease    *driver.Lease
	link     *link
	calls    calls.Gate // tracks the session's goroutines
	watches  watches.Set
	notices  notices

	generation string        // set by Connect
	graced     time.Duration // how long Connect waited for earlier leases to end

	early atomic.Bool   // an extra heartbeat is scheduled
	news  chan struct{} // wakes checkWatches; has capacity 1

	operations atomic.Int64 // number of Creates so far
	orphans    orphans

	closing sync.Mutex // held during Close
	gone    bool       // the store has removed the session; guarded by closing
}

func (s *session) ask(ctx context.Context, what, queue string, script *redis.Script, args ...any) (any, error) {
	err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue))
	var reply any
	if err == nil {
		reply, err = s.link.eval(ctx, s.link.requests, script, append([]any{s.id, queue}, args...)...)
	}
	return reply, s.explain(what, queue, err)
}

func (s *session) explain(what, queue string, err error) error {
	s.endIfUnknown(err)
	if ended := s.lease.Err(); ended != nil {
		return ended
	}
	if err != nil {
		return fmt.Errorf("redisdriver: %s in %q: %w", what, queue, err)
	}
	return nil
}

func (s *session) endIfUnknown(err error) {
	if errors.Is(err, driver.ErrSessionEnded) {
		s.lease.End(errUnknown)
	}
}

var (
	errUnknown = errors.New("redisdriver: the store has ended the session")
	errClosed  = errors.New("redisdriver: closed")
)

// Create implements [driver.Session]. If a request fails but may have created
// the node, Create cancels it in the background.
func (s *session) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	if err := cmp.Or(s.lease.Err(), driver.CheckPrefix(n.Prefix), driver.CheckQueue(queue)); err != nil {
		return driver.Joined{}, err
	}
	if ctx.Err() != nil {
		return driver.Joined{}, cutShort(ctx)
	}
	arm := "0"
	if n.Predecessor != nil {
		arm = "1"
	}
	operation := strconv.FormatInt(s.operations.Add(1), 10)
	arming := s.notices.begin(queue)
	defer s.notices.end(arming)
	reply, err := s.ask(ctx, "create", queue, createScript, operation, n.Prefix, n.Data, arm)
	if err == nil {
		var j driver.Joined
		if j, err = joined(reply, n.Prefix); err == nil {
			j.Watch = s.armed(arming, j, reply, n.Predecessor)
			return j, nil
		}
	}
	s.cancel(operation)
	return driver.Joined{}, err
}

// joined parses the reply to a create: the new node's sequence, the members that
// were in the queue before, and the store's time.
func joined(reply any, prefix string) (j driver.Joined, err error) {
	parts, _ := reply.([]any)
	if len(parts) != 3 {
		return j, errReply
	}
	text, _ := parts[0].(string)
	now, _ := parts[2].(int64)
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return j, errReply
	}
	j.Place = driver.Place{Node: driver.Node{Name: driver.FormatName(prefix, seq), Seq: seq}, Token: seq}
	j.Created = time.UnixMicro(now)
	all, err := members(parts[1])
	if err != nil {
		return j, err
	}
	j.Known = true
	for _, m := range all {
		if m.Seq < seq {
			j.Ahead = append(j.Ahead, m.Node)
		}
	}
	return j, nil
}

// armed returns the watch on the node that predecessor chooses. It returns the
// zero Watch unless this is the last node in the queue, because the create
// script registers a watch only for the last node.
func (s *session) armed(a *arming, j driver.Joined, reply any, predecessor func([]driver.Node) int) driver.Watch {
	if predecessor == nil || len(j.Ahead) == 0 {
		return driver.Watch{}
	}
	all := reply.([]any)[1].([]any)
	last, _ := all[len(all)-1].(string)
	i := predecessor(slices.Clone(j.Ahead))
	if i < 0 || parseMember(last).name != j.Ahead[i].Name {
		return driver.Watch{}
	}
	return s.notices.arm(a, j.Place, j.Ahead[i])
}

func (s *session) List(ctx context.Context, queue string) (nodes []driver.Node, err error) {
	reply, err := s.ask(ctx, "list", queue, listScript)
	if err != nil {
		return nil, err
	}
	all, err := members(reply)
	for _, m := range all {
		nodes = append(nodes, m.Node)
	}
	return nodes, err
}

// watched returns those nodes of the queue that the session watches. It doesn't
// list the whole queue, which may be long, because each waiting session calls
// watched periodically.
func (s *session) watched(ctx context.Context, queue string) ([]contender, error) {
	args := []any{s.id, queue}
	for _, name := range s.watches.Names(queue) {
		args = append(args, name)
	}
	reply, err := s.link.eval(ctx, s.link.upkeep, lookScript, args...)
	if err := s.explain("look", queue, err); err != nil {
		return nil, err
	}
	return members(reply)
}

// Watch implements [driver.Session]. It arms the watch before it asks the store
// whether the nodes exist, so that it misses no notice in between.
func (s *session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w := s.watches.Arm(queue, p, ahead...)
	args := []any{p.Token, p.Name}
	for _, a := range ahead {
		args = append(args, a.Name)
	}
	reply, err := s.ask(ctx, "watch", queue, watchScript, args...)
	if err != nil || reply == int64(0) {
		w.Stop()
		w = driver.Watch{}
		if err == nil {
			w = watches.Ended()
		}
	}
	return w, err
}

// WatchQueue implements [driver.Session]. Every periodic check ends the watch,
// because the store keeps no version of a queue by which to detect a change.
func (s *session) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	w := s.watches.ArmQueue(queue, nil)
	if _, err := s.ask(ctx, "watch", queue, watchQueueScript); err != nil {
		w.Stop()
		return driver.Watch{}, err
	}
	return w, nil
}

// Delete implements [driver.Session]. It finds the node by its sequence,
// because Replace may have renamed it. Nodes of other sessions are never
// removed.
func (s *session) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	cause := "c"
	if why == driver.Released {
		cause = "r"
	}
	_, err := s.ask(ctx, "delete "+p.Name, queue, deleteScript, p.Seq, cause)
	if err == nil || errors.Is(err, driver.ErrGone) {
		s.notices.deliver(notice{queue: queue, name: p.Name})
	}
	return err
}

// Replace implements [driver.Session].
func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	if err := cmp.Or(s.lease.Err(), driver.CheckPrefix(prefix)); err != nil {
		return p, err
	}
	old, err := s.ask(ctx, "replace "+p.Name, queue, replaceScript, p.Seq, prefix)
	if err != nil {
		return p, err
	}
	p.Name = driver.FormatName(prefix, p.Seq)
	if name, _ := old.(string); name != p.Name {
		s.notices.deliver(notice{queue: queue, name: name})
	}
	return p, nil
}

// Read implements [driver.Inspector].
func (s *session) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	reply, err := s.ask(ctx, "read "+name, queue, readScript, name)
	if err != nil {
		return driver.NodeInfo{}, err
	}
	parts, _ := reply.([]any)
	if len(parts) != 3 {
		return driver.NodeInfo{}, errReply
	}
	text, _ := parts[0].(string)
	left, _ := parts[1].(int64)
	now, _ := parts[2].(int64)
	m := parseMember(text)
	c, _ := m.contender()
	info := driver.NodeInfo{Node: c.Node, Owner: m.owner, Data: []byte(m.data), Foreign: m.owner != s.id}
	if m.owner != "" {
		info.Token, info.Created = c.Seq, time.UnixMicro(min(c.Seq, now)) // sequences may be ahead of the clock
		info.SessionLeft = time.Duration(left) * time.Microsecond
	}
	return info, nil
}

// Remove implements [driver.Inspector].
func (s *session) Remove(ctx context.Context, queue string, p driver.Place) error {
	_, err := s.ask(ctx, "remove "+p.Name, queue, removeScript, p.Name, p.Token)
	if err == nil {
		s.notices.deliver(notice{queue: queue, name: p.Name})
	}
	return err
}

// SetValue implements [driver.Inspector].
func (s *session) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	if err := driver.CheckValue(value); err != nil {
		return fmt.Errorf("redisdriver: set value: %w", err)
	}
	_, err := s.ask(ctx, "set value", queue, setValueScript, p.Seq, append([]byte{}, value...))
	return err
}

// Value implements [driver.Inspector].
func (s *session) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	reply, err := s.ask(ctx, "value", queue, valueScript)
	if err != nil {
		return nil, 0, err
	}
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return nil, 0, errReply
	}
	seq, found := parts[0].(string)
	if !found {
		return nil, 0, nil
	}
	text, _ := parts[1].(string)
	token, err = strconv.ParseInt(seq, 10, 64)
	if err != nil {
		return nil, 0, errReply
	}
	return []byte(text), token, nil
}

// Walk implements [driver.Inspector].
func (s *session) Walk(ctx context.Context, prefix string) ([]string, error) {
	if prefix != "" {
		if err := driver.CheckQueue(prefix); err != nil {
			return nil, err
		}
	}
	var queues []string
	for cursor := any("0"); ; {
		if err := s.lease.Err(); err != nil {
			return nil, err
		}
		reply, err := s.link.eval(ctx, s.link.requests, walkScript, s.id, cursor, glob(s.settings.key("q:"+prefix))+"*")
		if err := s.explain("walk", prefix, err); err != nil {
			return nil, err
		}
		page, _ := reply.([]any)
		if len(page) != 2 {
			return nil, errReply
		}
		keys, _ := page[1].([]any)
		for _, key := range keys {
			text, _ := key.(string)
			if q := strings.TrimPrefix(text, s.settings.key("q:")); prefix == "" || q == prefix || strings.HasPrefix(q, prefix+"/") {
				queues = append(queues, q)
			}
		}
		if cursor = page[0]; cursor == "0" {
			slices.Sort(queues)
			return slices.Compact(queues), nil
		}
	}
}

// glob escapes text for use in a Redis pattern, so that the pattern matches
// text literally.
func glob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

func (s *session) Done() <-chan struct{} { return s.lease.Done() }
func (s *session) Err() error            { return s.lease.Err() }

// Describe implements [driver.Inspector].
func (s *session) Describe() driver.SessionInfo {
	return driver.SessionInfo{ID: s.id, Server: s.link.address(), Timeout: s.settings.timeout, Generation: s.generation, Grace: s.graced}
}

// OnHeartbeat implements [driver.Inspector].
func (s *session) OnHeartbeat(f func(left, term time.Duration)) bool {
	s.lease.OnRenew(f)
	return true
}

// beat sends a heartbeat. Redis expires sessions only while it handles a
// request, so beat schedules an extra heartbeat if another session is due to
// expire before this session's next regular heartbeat.
func (s *session) beat(ctx context.Context) error {
	reply, err := s.link.evalConfirmed(ctx, beatScript, s.id, s.settings.timeout.Microseconds())
	s.endIfUnknown(err)
	if err != nil {
		return err
	}
	micros, _ := reply.(int64)
	if next := time.Duration(micros)*time.Microsecond + time.Millisecond; next < s.settings.timeout/8 && s.watches.Len() > 0 {
		s.beatIn(max(next, 0))
	}
	return nil
}

// beatIn schedules a heartbeat after d, unless one is already scheduled.
func (s *session) beatIn(d time.Duration) {
	if s.early.CompareAndSwap(false, true) && !s.calls.Go(func() { s.beatEarly(d) }) {
		s.early.Store(false)
	}
}

func (s *session) beatEarly(d time.Duration) {
	again := s.link.pause(d)
	s.early.Store(false)
	if !again {
		return
	}
	ctx, cancel := context.WithTimeout(s.link.life, s.settings.timeout/4)
	defer cancel()
	_ = s.lease.Do(func() error { return s.beat(ctx) })
}

// Close ends the lease and closes all connections. It then removes the session
// from the store over a new connection, even if the lease has expired.
func (s *session) Close() error {
	s.lease.End(errClosed)
	s.link.close()
	s.calls.Close()
	s.closing.Lock()
	defer s.closing.Unlock()
	s.link.requests.wait()
	if s.gone {
		return nil
	}
	last := newLink(s.settings)
	s.link.mu.Lock() // a dial by go-redis may still be in flight
	last.addrs, last.moved = s.link.addrs, s.link.moved
	s.link.mu.Unlock()
	defer last.close()
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeWithin, errCloseLimit)
	defer cancel()
	if _, err := last.eval(ctx, last.upkeep, closeScript, s.id); err != nil {
		return fmt.Errorf("redisdriver: close: the nodes stay until the session times out: %w", err)
	}
	s.gone = true
	return nil
}

// closeWithin limits how long Close takes when the store is unreachable.
const closeWithin = 2 * time.Second

var errCloseLimit = fmt.Errorf("given up after %v", closeWithin)
