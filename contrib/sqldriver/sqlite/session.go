package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/calls"
	"github.com/dlock-go/dlock/driver/watches"
)

// block is how many tokens one durable transaction reserves.
const block = 1000

var (
	errExpired   = errors.New("the database has dropped the session")
	errExhausted = errors.New("no token is reserved")
	errReplaced  = errors.New("a file of the database was removed or replaced")
)

var (
	_ driver.Session   = (*session)(nil)
	_ driver.Inspector = (*session)(nil)
)

type session struct {
	path     string
	timeout  time.Duration
	db       *database
	file     fs.FileInfo // describes the database file
	presence *presence
	lease    *driver.Lease
	watches  watches.Set
	calls    calls.Gate // calls in flight and goroutines of the session
	changed  chan struct{}
	armed    chan struct{}

	// The fields below are guarded by db.inUse.
	heads     map[string][]string // other sessions at the head of each watched queue
	announced string              // "queue/name" of the node last reported as released

	closing sync.Mutex // held during Close
	gone    bool       // the session has ended in the database
}

func newSession(path string, timeout time.Duration, db *database) *session {
	return &session{
		path: path, timeout: timeout, db: db, lease: driver.NewLease(timeout, 0), heads: make(map[string][]string),
		changed: make(chan struct{}, 1), armed: make(chan struct{}, 1),
	}
}

func (s *session) begin(ctx context.Context) (err error) {
	if err := s.db.read(ctx, func(context.Context) error { return nil }); err != nil { // connects
		return err
	}
	// Connect could not resolve a symbolic link to a file that SQLite has only
	// now created.
	if s.path, err = filepath.EvalSymlinks(s.path); err != nil {
		return err
	}
	if s.file, err = os.Stat(s.path); err != nil {
		return err
	}
	mode := s.file.Mode().Perm() & 0o666
	if s.presence, err = enter(s.path+"-sessions", mode|mode&0o444>>2); err != nil {
		return err
	}
	first, err := s.presence.attend(ctx)
	if err != nil {
		return err
	}
	if err := s.makeTables(ctx); err != nil {
		return err
	}
	if first || !kernelLocks {
		if err := s.startTokens(ctx, first); err != nil {
			return err
		}
	}
	if err := s.reap(ctx); err != nil {
		return err
	}
	if err := s.sweep(ctx); err != nil {
		return err
	}
	return s.lease.Begin(func() error {
		return s.db.update(ctx, func(ctx context.Context) error {
			return s.db.exec(ctx, sqlAddSession, s.presence.id, deadline(s.timeout))
		}, nil)
	})
}

// makeTables creates the tables if they are missing. It is safe to call in
// several processes at once.
func (s *session) makeTables(ctx context.Context) error {
	var found, version int
	read := func(ctx context.Context) error {
		_, err := s.db.row(ctx, sqlHasSchema, []any{&found})
		if err == nil && found > 0 {
			_, err = s.db.row(ctx, sqlSchema, []any{&version})
		}
		return err
	}
	if err := s.db.read(ctx, read); err != nil {
		return err
	}
	if found == 0 {
		err := s.db.durably(ctx, func(ctx context.Context) error {
			if err := read(ctx); err != nil || found > 0 {
				return err
			}
			_, err := s.db.conn.ExecContext(ctx, createSchema)
			version = schemaVersion
			return err
		})
		if err != nil {
			return err
		}
	}
	if version != schemaVersion {
		return fmt.Errorf("%w: the tables of dlock in it have the version %d, and this program knows the version %d: "+
			"use the same release of dlock in all programs", errPermanent, version, schemaVersion)
	}
	return nil
}

// startTokens reserves the session's first block of tokens. If first is true,
// no other session is alive, so a power cut may have lost the latest
// transactions. startTokens then skips the block of tokens reserved before, so
// that no token is issued twice.
func (s *session) startTokens(ctx context.Context, first bool) error {
	if !first {
		return s.reserve(ctx)
	}
	err := s.db.durably(ctx, func(ctx context.Context) error { return s.db.exec(ctx, sqlSkip, block) })
	if err == nil {
		err = s.presence.share(ctx)
	}
	return err
}

// reserve durably reserves a new block of tokens if the current one is used up.
func (s *session) reserve(ctx context.Context) error {
	return s.db.durably(ctx, func(ctx context.Context) error { return s.db.exec(ctx, sqlReserve, block) })
}

// deadline returns the time at which the database ends a session whose last
// heartbeat is now, in microseconds since 1970.
func deadline(timeout time.Duration) int64 { return time.Now().Add(timeout).UnixMicro() }

// beat sends a heartbeat.
func (s *session) beat(ctx context.Context) error {
	if !inPlace(s.path, s.file) {
		err := fmt.Errorf("%w: %s", errReplaced, s.path)
		s.lease.End(err)
		return err
	}
	var beats int64
	err := s.db.beat(ctx, func(ctx context.Context) (err error) {
		if err := s.db.checkSide(); err != nil {
			return err
		}
		beats, err = s.db.changed(ctx, sqlBeat, deadline(s.timeout), s.presence.id)
		return err
	})
	if err == nil && beats == 0 {
		err = errExpired
	}
	if errors.Is(err, errExpired) || errors.Is(err, errReplaced) {
		s.lease.End(err)
	}
	return err
}

// reap ends the sessions whose processes died or whose deadlines have passed.
func (s *session) reap(ctx context.Context) error {
	var dead []string
	var expired bool
	err := s.db.read(ctx, func(ctx context.Context) error {
		dead, expired = nil, false
		return s.db.query(ctx, sqlSessions, func(r rows) error {
			var id string
			var end int64
			err := r.Scan(&id, &end)
			if s.presence.dead(id) {
				dead = append(dead, id)
			}
			expired = expired || end <= time.Now().UnixMicro()
			return err
		}, s.presence.id)
	})
	if err != nil || len(dead) == 0 && !expired {
		return err
	}
	err = s.db.update(ctx, func(ctx context.Context) error {
		for _, id := range dead {
			if err := s.db.exec(ctx, sqlEnd, id); err != nil {
				return err
			}
		}
		return s.db.exec(ctx, sqlExpire, time.Now().UnixMicro(), s.presence.id)
	}, s.look)
	if err == nil {
		for _, id := range dead {
			s.presence.forget(id)
		}
	}
	return err
}

// sweep removes files left behind by sessions that are not in the database. It
// keeps those of other dead sessions, because reap needs them.
func (s *session) sweep(ctx context.Context) error {
	ids := s.presence.remains()
	if len(ids) == 0 {
		return nil
	}
	err := s.db.read(ctx, func(ctx context.Context) error {
		return s.db.query(ctx, sqlSessions, func(r rows) error {
			var id string
			var end int64
			err := r.Scan(&id, &end)
			delete(ids, id)
			return err
		}, s.presence.id)
	})
	if err != nil {
		return err
	}
	for id := range ids {
		s.presence.forget(id)
	}
	return nil
}

// ask makes a request unless the session has ended. It ends the session if the
// outcome is unknown or the database no longer has the session.
func (s *session) ask(ctx context.Context, what, queue string, request func(context.Context) error) error {
	ctx, leave, open := s.calls.Enter(ctx)
	if !open {
		return s.lease.Err()
	}
	defer leave()
	err := s.lease.Err()
	if err == nil {
		err = request(ctx)
	}
	if errors.Is(err, errExpired) || errors.Is(err, errUnknownOutcome) {
		s.lease.End(err)
	}
	if ended := s.lease.Err(); ended != nil {
		return ended
	}
	if err != nil {
		return fmt.Errorf("sqlite: %s in %q: %w", what, queue, explain(err))
	}
	return nil
}

// endCalls cancels the calls in flight when the session ends. Otherwise they
// would block for as long as another process locks the database.
func (s *session) endCalls() {
	<-s.lease.Done()
	s.presence.silence() // makes presence.hear return, for which calls.Close waits
	s.calls.Close()
}

type node struct {
	driver.Node
	session string
}

type content struct {
	nodes    []node // the oldest first
	changes  int64
	released string // name of the latest released node of this queue, or empty
}

func (s *session) content(ctx context.Context, queue string) (c content, err error) {
	err = s.db.query(ctx, sqlQueue, func(r rows) error {
		var alive bool
		var released, name, owner *string
		var seq *int64
		if err := r.Scan(&alive, &c.changes, &released, &seq, &name, &owner); err != nil {
			return err
		}
		if !alive {
			return errExpired
		}
		if released != nil {
			if q, n, _ := cutLast(*released); q == queue {
				c.released = n
			}
		}
		if name != nil {
			if _, seq, ok := driver.ParseName(*name); ok {
				n := node{Node: driver.Node{Name: *name, Seq: seq}}
				if owner != nil {
					n.session = *owner
				}
				c.nodes = append(c.nodes, n)
			}
		}
		return nil
	}, s.presence.id, queue)
	// Another program may have written a seq that differs from the number in
	// the name.
	slices.SortStableFunc(c.nodes, func(a, b node) int { return cmp.Compare(a.Seq, b.Seq) })
	return c, err
}

func cutLast(path string) (queue, name string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", "", false
	}
	return path[:i], path[i+1:], true
}

func (c content) list() []driver.Node {
	list := make([]driver.Node, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = n.Node
	}
	return list
}

// has reports whether the queue contains node p. If p has no token, only the
// names are compared.
func (c content) has(p driver.Place) bool {
	return slices.ContainsFunc(c.nodes, func(n node) bool {
		return n.Name == p.Name && (p.Token == 0 || n.token() == p.Token)
	})
}

// token returns the token of a node, or zero if no session owns it.
func (n node) token() int64 {
	if n.session == "" {
		return 0
	}
	return n.Seq
}

// Create implements driver.Session.
func (s *session) Create(ctx context.Context, queue string, n driver.NodeSpec) (j driver.Joined, err error) {
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue), driver.CheckPrefix(n.Prefix)); err != nil {
		return j, wrap("create", queue, err)
	}
	err = s.ask(ctx, "create", queue, func(ctx context.Context) error {
		j, err = s.create(ctx, queue, n)
		for errors.Is(err, errExhausted) {
			if err = s.reserve(ctx); err == nil {
				j, err = s.create(ctx, queue, n)
			}
		}
		return err
	})
	if err != nil {
		j.Watch.Stop()
		return driver.Joined{}, err
	}
	return j, nil
}

func (s *session) create(ctx context.Context, queue string, n driver.NodeSpec) (j driver.Joined, err error) {
	var c content
	blocker := -1
	err = s.db.update(ctx, func(ctx context.Context) (err error) {
		if j, c, err = s.number(ctx, queue, n.Prefix); err != nil {
			return err
		}
		var waitsFor *int64
		if n.Predecessor != nil {
			if blocker = n.Predecessor(j.Ahead); blocker >= 0 {
				waitsFor = &j.Ahead[blocker].Seq
			}
		}
		created := time.Now().UnixMicro()
		j.Created = time.UnixMicro(created)
		return s.db.exec(ctx, sqlInsert, queue, j.Seq, j.Name, s.presence.id, waitsFor, n.Data, created)
	}, func() {
		// The poller does not notice changes made by its own connection.
		s.watches.Changed(queue)
		if blocker >= 0 {
			j.Watch = s.arm(queue, c, j.Place, j.Ahead[blocker])
		}
	})
	if err == nil && s.dropHead(ctx, c) {
		j.Watch.Stop()
		// The nodes ahead have changed, so the caller must list them again.
		j = driver.Joined{Place: j.Place, Created: j.Created}
	}
	return j, err
}

// number allocates the sequence number of a new node, and reads the nodes ahead
// of it.
func (s *session) number(ctx context.Context, queue, prefix string) (j driver.Joined, c content, err error) {
	var seq int64
	found, err := s.db.row(ctx, sqlNumber, []any{&seq}, s.presence.id)
	if err != nil {
		return j, c, err
	}
	c, err = s.content(ctx, queue) // returns an error if the session has ended
	if err == nil && !found {
		err = errExhausted
	}
	if err != nil {
		return j, c, err
	}
	c.nodes = slices.DeleteFunc(c.nodes, func(n node) bool { return n.Seq > seq })
	j.Place = driver.Place{Node: driver.Node{Name: driver.FormatName(prefix, seq), Seq: seq}, Token: seq}
	j.Known, j.Ahead = true, c.list()
	return j, c, nil
}

// arm arms a watch of nodes known to be in the queue. The caller must have
// exclusive use of the connection (database.use).
func (s *session) arm(queue string, c content, p driver.Place, ahead ...driver.Node) driver.Watch {
	w := s.watches.Arm(queue, p, ahead...)
	s.heads[queue] = s.head(c)
	poke(s.armed)
	return w
}

// List implements driver.Session.
func (s *session) List(ctx context.Context, queue string) (nodes []driver.Node, err error) {
	var c content
	list := func() error { return s.view(ctx, "list", queue, func(now content) { c = now }) }
	if err := list(); err != nil {
		return nil, err
	}
	if s.dropHead(ctx, c) {
		err = list()
	}
	return c.list(), err
}

// dropHead ends the session of the first node if its process is dead, and
// reports whether the caller must read the queue again. Thus even TryLock, which
// does not wait, gets the lock of a killed holder.
func (s *session) dropHead(ctx context.Context, c content) bool {
	if len(c.nodes) == 0 || c.nodes[0].session == s.presence.id {
		return false
	}
	if !s.presence.dead(c.nodes[0].session) {
		// The poller may have ended the session since the caller read c.
		return s.presence.missing(c.nodes[0].session)
	}
	ctx, leave, open := s.calls.Enter(ctx)
	if !open {
		return false
	}
	defer leave()
	return s.reap(ctx) == nil
}

// view calls f with the content of the queue. Until f returns, nobody else uses
// the connection, so that a watch armed by f is not compared with older
// content.
func (s *session) view(ctx context.Context, what, queue string, f func(content)) error {
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue)); err != nil {
		return wrap(what, queue, err)
	}
	return s.ask(ctx, what, queue, func(ctx context.Context) error {
		return s.db.read(ctx, func(ctx context.Context) error {
			c, err := s.content(ctx, queue)
			if err == nil {
				f(c)
			}
			return err
		})
	})
}

// Watch implements driver.Session.
func (s *session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (w driver.Watch, err error) {
	err = s.view(ctx, "watch", queue, func(c content) {
		missing := func(n driver.Node) bool { return !c.has(driver.Place{Node: n}) }
		if !c.has(p) || slices.ContainsFunc(ahead, missing) {
			w = watches.Ended()
			return
		}
		w = s.arm(queue, c, p, ahead...)
	})
	if err != nil {
		w.Stop()
		return driver.Watch{}, err
	}
	return w, nil
}

// WatchQueue implements driver.Session.
func (s *session) WatchQueue(ctx context.Context, queue string) (w driver.Watch, err error) {
	err = s.view(ctx, "watch", queue, func(c content) {
		w = s.watches.ArmQueue(queue, c.changes)
		poke(s.armed)
	})
	if err != nil {
		w.Stop()
		return driver.Watch{}, err
	}
	return w, nil
}

// Delete implements driver.Session.
func (s *session) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	return s.change(ctx, "delete "+p.Name, queue, p, func(ctx context.Context) error {
		var name string
		found, err := s.db.row(ctx, sqlDelete, []any{&name}, queue, p.Token, s.presence.id)
		if err == nil && !found {
			err = s.missing(ctx)
		}
		if err == nil && why == driver.Released {
			err = s.db.exec(ctx, sqlReleased, queue+"/"+name)
		}
		return err
	})
}

// Replace implements driver.Session.
func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	if err := cmp.Or(s.lease.Err(), driver.CheckPrefix(prefix)); err != nil {
		return driver.Place{}, wrap("replace", queue, err)
	}
	name := driver.FormatName(prefix, p.Token)
	err := s.change(ctx, "replace "+p.Name, queue, p, func(ctx context.Context) error {
		rows, err := s.db.changed(ctx, sqlReplace, name, queue, p.Token, s.presence.id)
		if err == nil && rows == 0 {
			err = s.missing(ctx)
		}
		return err
	})
	if err != nil {
		return driver.Place{}, err
	}
	p.Name, p.Seq = name, p.Token
	return p, nil
}

// Remove implements driver.Inspector.
func (s *session) Remove(ctx context.Context, queue string, p driver.Place) error {
	var owner string
	err := s.change(ctx, "remove "+p.Name, queue, p, func(ctx context.Context) error {
		found, err := s.db.row(ctx, sqlRemove, []any{&owner}, queue, p.Name, p.Token)
		if err == nil && !found {
			err = s.missing(ctx)
		}
		return err
	})
	if err == nil {
		s.wake(queue, []string{owner})
	}
	return err
}

// SetValue implements driver.Inspector. It waits for the disk, because the value
// must outlive the machine, unlike nodes.
func (s *session) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue), driver.CheckValue(value)); err != nil {
		return wrap("set value", queue, err)
	}
	value = append([]byte{}, value...)
	return s.ask(ctx, "set value", queue, func(ctx context.Context) error {
		return s.db.durably(ctx, func(ctx context.Context) error {
			rows, err := s.db.changed(ctx, sqlSetValue, queue, p.Token, value, s.presence.id)
			if err != nil || rows > 0 {
				return err
			}
			var own bool
			if _, err = s.db.row(ctx, sqlOwn, []any{&own}, queue, p.Token, s.presence.id); err == nil && own {
				return driver.ErrStale
			}
			return cmp.Or(err, s.missing(ctx))
		})
	})
}

// Value implements driver.Inspector.
func (s *session) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue)); err != nil {
		return nil, 0, wrap("value", queue, err)
	}
	err = s.ask(ctx, "value", queue, func(ctx context.Context) error {
		return s.db.read(ctx, func(ctx context.Context) error {
			var alive bool
			_, err := s.db.row(ctx, sqlValue, []any{&alive, &token, &value}, s.presence.id, queue)
			if err == nil && !alive {
				err = errExpired
			}
			return err
		})
	})
	if err != nil {
		return nil, 0, err
	}
	return value, token, nil
}

// missing returns the error for a node of this session that is not in the
// database. The error says whether the whole session or only the node is gone.
func (s *session) missing(ctx context.Context) error {
	var alive bool
	_, err := s.db.row(ctx, sqlAlive, []any{&alive}, s.presence.id)
	if err == nil && !alive {
		return errExpired
	}
	return cmp.Or(err, driver.ErrGone)
}

// change runs a transaction that removes or renames node p, then wakes the
// sessions that wait for p.
func (s *session) change(ctx context.Context, what, queue string, p driver.Place, f func(context.Context) error) error {
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue)); err != nil {
		return wrap(what, queue, err)
	}
	return s.ask(ctx, what, queue, func(ctx context.Context) error {
		var blocked []string
		err := s.db.update(ctx, func(ctx context.Context) error {
			if err := f(ctx); err != nil {
				return err
			}
			blocked = nil
			return s.db.query(ctx, sqlBlocked, func(r rows) error {
				var id string
				err := r.Scan(&id)
				blocked = append(blocked, id)
				return err
			}, queue, p.Token)
		}, nil)
		if err == nil {
			s.wake(queue, blocked)
		}
		return err
	})
}

func (s *session) wake(queue string, blocked []string) {
	if s.watches.Has(queue) {
		s.look()
	}
	for _, id := range blocked {
		if id != s.presence.id {
			s.presence.notify(id)
		}
	}
}

// Read implements driver.Inspector.
func (s *session) Read(ctx context.Context, queue, name string) (info driver.NodeInfo, err error) {
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue)); err != nil {
		return info, wrap("read", queue, err)
	}
	err = s.ask(ctx, "read "+name, queue, func(ctx context.Context) error {
		return s.db.read(ctx, func(ctx context.Context) error {
			info, err = s.readNode(ctx, queue, name)
			return err
		})
	})
	return info, err
}

func (s *session) readNode(ctx context.Context, queue, name string) (info driver.NodeInfo, err error) {
	var alive bool
	var seq, created, end *int64
	var owner *string
	_, err = s.db.row(ctx, sqlNode, []any{&alive, &seq, &owner, &info.Data, &created, &end}, s.presence.id, queue, name)
	switch {
	case err != nil:
		return driver.NodeInfo{}, err
	case !alive:
		return driver.NodeInfo{}, errExpired
	case seq == nil:
		return driver.NodeInfo{}, driver.ErrGone
	}
	info.Node = driver.Node{Name: name, Seq: *seq}
	if owner != nil {
		info.Owner, info.Token = *owner, *seq
	}
	info.Foreign = info.Owner != s.presence.id
	if created != nil {
		info.Created = time.UnixMicro(*created)
	}
	if end != nil {
		info.SessionLeft = max(0, time.Until(time.UnixMicro(*end)))
	}
	return info, nil
}

// Walk implements driver.Inspector.
func (s *session) Walk(ctx context.Context, prefix string) (queues []string, err error) {
	if prefix != "" {
		if err := cmp.Or(s.lease.Err(), driver.CheckQueue(prefix)); err != nil {
			return nil, wrap("walk", prefix, err)
		}
	}
	err = s.ask(ctx, "walk", prefix, func(ctx context.Context) error {
		return s.db.read(ctx, func(ctx context.Context) error {
			queues = nil
			return s.db.query(ctx, sqlQueues, func(r rows) error {
				var alive bool
				var queue *string
				if err := r.Scan(&alive, &queue); err != nil {
					return err
				}
				if !alive {
					return errExpired
				}
				if queue != nil && (prefix == "" || *queue == prefix || strings.HasPrefix(*queue, prefix+"/")) {
					queues = append(queues, *queue)
				}
				return nil
			}, s.presence.id)
		})
	})
	slices.Sort(queues)
	return queues, err
}

// Done implements driver.Session.
func (s *session) Done() <-chan struct{} { return s.lease.Done() }

// Err implements driver.Session.
func (s *session) Err() error { return s.lease.Err() }

// Describe implements driver.Inspector.
func (s *session) Describe() driver.SessionInfo {
	return driver.SessionInfo{ID: s.presence.id, Server: s.path, Timeout: s.timeout}
}

// OnHeartbeat implements driver.Inspector.
func (s *session) OnHeartbeat(f func(left, term time.Duration)) bool {
	s.lease.OnRenew(f)
	return true
}

// Close implements [driver.Session]. It ends the lease first and then the
// session in the database, even if the lease has already expired.
func (s *session) Close() error {
	s.lease.End(errors.New("sqlite: closed"))
	s.presence.silence()
	s.calls.Close()
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := s.db.update(ctx, func(ctx context.Context) error {
		return s.db.exec(ctx, sqlEnd, s.presence.id)
	}, nil)
	s.db.close()
	if err != nil {
		s.presence.unlock() // so that another session finds this one dead
		if !errors.Is(err, driver.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		return fmt.Errorf("sqlite: close: the nodes stay until another session drops them: %w", err)
	}
	s.presence.leave()
	s.gone = true
	return nil
}

func wrap(what, queue string, err error) error {
	if errors.Is(err, driver.ErrSessionEnded) {
		return err
	}
	return fmt.Errorf("sqlite: %s in %q: %w", what, queue, err)
}
