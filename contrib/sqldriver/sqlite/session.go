package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// block is how many tokens one durable transaction reserves.
const block = 1000

var (
	errExpired   = fmt.Errorf("%w: the database has dropped the session", driver.ErrSessionEnded)
	errReplaced  = fmt.Errorf("%w: a file of the database was removed or replaced", driver.ErrSessionEnded)
	errExhausted = errors.New("no token is reserved")
)

// member is the database as one session sees it.
type member struct {
	path     string
	timeout  time.Duration
	db       *database
	file     fs.FileInfo
	presence *presence
	host     session.Host

	// The fields below are guarded by db.inUse.
	version [2]int64 // connection number and data_version, read before m.changes
	changes int64    // counter of node changes in the database
	heads   map[string]head
	probed  time.Time // when the processes of heads were last checked
}

var (
	_ session.Store   = (*member)(nil)
	_ session.Starter = (*member)(nil)
	_ session.Expirer = (*member)(nil)
	_ session.Reader  = (*member)(nil)
)

// open creates the tables, announces the session, and ends the sessions of dead
// processes.
func (m *member) open(ctx context.Context) (err error) {
	if err := m.db.read(ctx, func(context.Context) error { return nil }); err != nil { // connects
		return err
	}
	// A symbolic link can be resolved only now that the file exists.
	if m.path, err = filepath.EvalSymlinks(m.path); err != nil {
		return err
	}
	if m.file, err = os.Stat(m.path); err != nil {
		return err
	}
	mode := m.file.Mode().Perm() & 0o666
	if m.presence, err = enter(m.path+"-sessions", mode|mode&0o444>>2); err != nil {
		return err
	}
	first, err := m.presence.attend(ctx)
	if err != nil {
		return err
	}
	if err := m.makeTables(ctx); err != nil {
		return err
	}
	if first || !kernelLocks {
		if err := m.startTokens(ctx, first); err != nil {
			return err
		}
	}
	if _, err := m.reap(ctx); err != nil {
		return err
	}
	return m.sweep(ctx)
}

// makeTables creates missing tables. Processes may call it concurrently.
func (m *member) makeTables(ctx context.Context) error {
	var found, version int
	read := func(ctx context.Context) error {
		_, err := m.db.row(ctx, sqlHasSchema, []any{&found})
		if err == nil && found > 0 {
			_, err = m.db.row(ctx, sqlSchema, []any{&version})
		}
		return err
	}
	if err := m.db.read(ctx, read); err != nil {
		return err
	}
	if found == 0 {
		err := m.db.durably(ctx, func(ctx context.Context) error {
			if err := read(ctx); err != nil || found > 0 {
				return err
			}
			if _, err := m.db.conn.ExecContext(ctx, createSchema); err != nil {
				return err
			}
			version = schemaVersion
			return m.db.exec(ctx, sqlNew, schemaVersion)
		})
		if err != nil {
			return err
		}
	}
	if err := session.CheckLayout("the tables", version, schemaVersion); err != nil {
		return fmt.Errorf("%w: %w", errPermanent, err)
	}
	return nil
}

// startTokens reserves the first block of tokens. If first is true, a power cut
// may have lost transactions, so earlier blocks are skipped.
func (m *member) startTokens(ctx context.Context, first bool) error {
	if !first {
		return m.reserve(ctx)
	}
	err := m.db.durably(ctx, func(ctx context.Context) error { return m.db.exec(ctx, sqlSkip, block) })
	if err == nil {
		err = m.presence.share(ctx)
	}
	return err
}

// reserve durably reserves a new block of tokens if the current one is used up.
func (m *member) reserve(ctx context.Context) error {
	return m.db.durably(ctx, func(ctx context.Context) error { return m.db.exec(ctx, sqlReserve, block) })
}

func (m *member) Start(h session.Host) { m.host = h }

func (m *member) Begin(ctx context.Context, timeout time.Duration) (session.Begun, error) {
	err := m.db.update(ctx, func(ctx context.Context) error {
		return m.db.exec(ctx, sqlAddSession, byClock(timeout.Microseconds(), m.presence.id)...)
	})
	if err == nil {
		m.host.Go(m.hear)
	}
	return session.Begun{}, explain(err)
}

func (m *member) hear(ctx context.Context) {
	defer context.AfterFunc(ctx, m.presence.silence)()
	m.presence.hear(m.host.Look)
}

// byClock returns both clocks and args, for statements with sqlLeft or a
// deadline.
func byClock(args ...any) []any {
	now := time.Now()
	boot, since := bootClock(now)
	return append([]any{boot, since.Microseconds(), now.UnixMicro()}, args...)
}

// Beat implements session.Store. It returns zero, so that the session searches
// for dead processes after each heartbeat.
func (m *member) Beat(ctx context.Context) (next time.Duration, err error) {
	beat := func(ctx context.Context) error {
		if err := m.db.checkSide(); err != nil {
			return err
		}
		beats, err := m.db.changed(ctx, sqlBeat, byClock(m.timeout.Microseconds(), m.presence.id)...)
		if err == nil && beats == 0 {
			err = errExpired
		}
		if code, _ := errorCode(err); code == codeError { // the table is missing
			err = fmt.Errorf("%w: %w", errExpired, err)
		}
		return err
	}
	if err = fmt.Errorf("%w: %s", errReplaced, m.path); inPlace(m.path, m.file) {
		err = m.db.beat(ctx, beat)
	}
	if errors.Is(err, errReplaced) {
		m.db.close() // so that new connections use the new files
	}
	return 0, err
}

func (m *member) End(ctx context.Context) error {
	err := m.db.update(ctx, func(ctx context.Context) error { return m.db.exec(ctx, sqlEnd, m.presence.id) })
	m.db.close()
	if err != nil {
		m.presence.unlock() // so that another session finds this one dead
		return explain(err)
	}
	m.presence.leave()
	return nil
}

// update resets m.version, because data_version changes only when another
// connection writes.
func (m *member) update(ctx context.Context, f func(context.Context) error) error {
	return m.db.update(ctx, func(ctx context.Context) error {
		m.version = [2]int64{}
		return f(ctx)
	})
}

func (m *member) Do(ctx context.Context, c session.Change) (r session.Result, err error) {
	switch c.Kind {
	case session.Create:
		r, err = m.create(ctx, c)
	case session.SetValue:
		err = m.setValue(ctx, c)
	default:
		r, err = m.change(ctx, c)
	}
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, errUnknownOutcome):
		return session.Result{}, fmt.Errorf("%w: %w", driver.ErrSessionEnded, err)
	}
	return session.Result{}, session.Refused(explain(err))
}

// Cancel implements session.Store. There is nothing to cancel, because Do knows
// the outcome of each Create or ends the session.
func (m *member) Cancel(context.Context, []session.Change) error { return nil }

func (m *member) create(ctx context.Context, c session.Change) (r session.Result, err error) {
	var before content
	insert := func() error {
		return m.update(ctx, func(ctx context.Context) (err error) {
			r, before, err = m.insert(ctx, c)
			return err
		})
	}
	for err = insert(); errors.Is(err, errExhausted); {
		if err = m.reserve(ctx); err == nil {
			err = insert()
		}
	}
	if err == nil && m.dropDead(ctx, before.heads[:min(len(before.heads), 1)]) {
		r.Nodes = nil // out of date; the caller lists them again
	}
	return r, err
}

func (m *member) insert(ctx context.Context, c session.Change) (r session.Result, before content, err error) {
	var seq int64
	found, err := m.db.row(ctx, sqlNumber, []any{&seq}, m.presence.id)
	if err != nil {
		return r, before, err
	}
	before, err = m.content(ctx, c.Queue) // fails if the session has ended
	if err == nil && !found {
		err = errExhausted
	}
	if err != nil {
		return r, before, err
	}
	created := time.Now().UnixMicro()
	r.Created = time.UnixMicro(created)
	r.Place = driver.Place{Node: driver.Node{Name: driver.FormatName(c.Prefix, seq), Seq: seq}, Token: seq}
	r.Nodes = append(before.Nodes, session.Node{Name: r.Place.Name, Token: seq})
	return r, before, m.db.exec(ctx, sqlInsert, c.Queue, seq, r.Place.Name, m.presence.id,
		blocker(c, before.Nodes, seq), c.Data, created)
}

// blocker returns the seq of the node that this Create waits for, or nil.
func blocker(c session.Change, before []session.Node, seq int64) *int64 {
	if c.Predecessor == nil || len(before) == 0 {
		return nil
	}
	ahead := make([]driver.Node, 0, len(before))
	for _, n := range before {
		if _, s, ok := driver.ParseName(n.Name); ok && s < seq {
			ahead = append(ahead, driver.Node{Name: n.Name, Seq: s})
		}
	}
	if i := c.Predecessor(ahead); i >= 0 {
		return &ahead[i].Seq
	}
	return nil
}

func (m *member) change(ctx context.Context, c session.Change) (r session.Result, err error) {
	var wake []string
	err = m.update(ctx, func(ctx context.Context) error {
		r.Place, wake = c.Place, []string{""}
		if err := m.changeNode(ctx, c, &r.Place.Name, &wake[0]); err != nil {
			return err
		}
		return m.db.query(ctx, sqlBlocked, func(r rows) error {
			var id string
			err := r.Scan(&id)
			wake = append(wake, id)
			return err
		}, c.Queue, c.Place.Token)
	})
	if err != nil {
		return r, err
	}
	for _, id := range wake {
		if id != m.presence.id {
			m.presence.notify(id)
		}
	}
	return r, nil
}

// changeNode makes the change. It stores the node's previous name, or the owner
// of a node that an operator removes.
func (m *member) changeNode(ctx context.Context, c session.Change, name, owner *string) (err error) {
	var found bool
	switch c.Kind {
	case session.Delete:
		found, err = m.db.row(ctx, sqlDelete, []any{name}, c.Queue, c.Place.Token, m.presence.id)
		if err == nil && found && c.Cause == driver.Released {
			err = m.db.exec(ctx, sqlReleased, c.Queue+"/"+*name)
		}
	case session.Replace:
		if found, err = m.own(ctx, c, name); err == nil && found {
			now := driver.FormatName(c.Prefix, c.Place.Token)
			err = m.db.exec(ctx, sqlReplace, now, c.Queue, c.Place.Token, m.presence.id)
		}
	case session.Remove:
		found, err = m.db.row(ctx, sqlRemove, []any{owner}, c.Queue, c.Place.Name, c.Place.Token)
	}
	if err == nil && !found {
		err = m.missing(ctx)
	}
	return err
}

func (m *member) own(ctx context.Context, c session.Change, name *string) (found bool, err error) {
	return m.db.row(ctx, sqlOwn, []any{name}, c.Queue, c.Place.Token, m.presence.id)
}

// missing returns errExpired if the whole session is gone, and driver.ErrGone
// if only the node is.
func (m *member) missing(ctx context.Context) error {
	var alive bool
	_, err := m.db.row(ctx, sqlAlive, []any{&alive}, m.presence.id)
	if err == nil && !alive {
		return errExpired
	}
	return cmp.Or(err, driver.ErrGone)
}

// Unlike a node, the value must survive a crash, so setValue syncs to disk.
func (m *member) setValue(ctx context.Context, c session.Change) error {
	return m.db.durably(ctx, func(ctx context.Context) error {
		rows, err := m.db.changed(ctx, sqlSetValue, c.Queue, c.Place.Token, c.Data, m.presence.id)
		if err != nil || rows > 0 {
			return err
		}
		var name string
		if own, err := m.own(ctx, c, &name); err != nil || own {
			return cmp.Or(err, driver.ErrStale)
		}
		return m.missing(ctx)
	})
}
