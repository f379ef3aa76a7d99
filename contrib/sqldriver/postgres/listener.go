package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// listener receives a session's notices on one connection, which preserves
// their commit order. Heartbeats use that connection, too, so they reveal its
// silence.
type listener struct {
	store *store
	life  context.Context
	end   context.CancelFunc
	done  sync.WaitGroup

	mu        sync.Mutex
	running   bool
	closed    bool
	connected bool
	lost      bool                     // a connection broke or could not be opened
	channels  map[string]bool          // true once the connection is subscribed
	waiting   map[string][]chan<- bool // callers of listen, by channel
	job       *job                     // to run on the connection, or nil
	interrupt context.CancelFunc       // ends the current wait for a notice
}

type job struct {
	run   func(*pgx.Conn) error
	began bool       // guarded by listener.mu
	done  chan error // gets the error of run, or errNotRun
}

var errNotRun = errors.New("the connection for notices is not available")

func (s *store) Subscribe(ctx context.Context, q session.Query) (session.Snapshot, error) {
	s.listener.listen(ctx, q.Queue)
	return session.LookAt(ctx, s, q)
}

// Listening implements session.Notifier. It returns false if whole is true,
// because notices never announce new nodes.
func (s *store) Listening(queue string, whole bool) bool {
	l := s.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	return !whole && l.connected && l.channels[l.channel(queue)]
}

// listen tries to subscribe to a queue's notices. It leaves its caller half of
// the time limit to read the queue.
func (l *listener) listen(ctx context.Context, queue string) {
	ctx, cancel := context.WithTimeout(ctx, sqlstore.Limit(l.store.connector.options.Timeout)/2)
	defer cancel()
	listening := make(chan bool, 1)
	if !l.store.connector.options.notify || l.store.Listening(queue, false) || !l.want(l.channel(queue), listening) {
		return
	}
	select {
	case <-listening:
	case <-ctx.Done():
	}
}

// want asks run to subscribe. If want returns true, listening later receives
// one value, even after a failure.
func (l *listener) want(channel string, listening chan<- bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.running && !l.connected && l.lost {
		return false
	}
	l.waiting[channel] = append(l.waiting[channel], listening)
	if !l.running {
		l.running = true
		l.done.Add(1)
		go l.run()
	}
	if l.interrupt != nil {
		l.interrupt()
	}
	return true
}

// channel returns a queue's NOTIFY channel. All queues share 256 channels, so
// that a session needs few subscriptions.
func (l *listener) channel(queue string) string {
	return fmt.Sprintf("%s_%02x", l.store.connector.options.schema, sha256.Sum256([]byte(queue))[0])
}

func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.done.Wait()
}

func (l *listener) run() {
	defer l.done.Done()
	for {
		// After an error, the session polls often until connect succeeds.
		_ = l.connect()
		l.disconnected()
		l.store.Host.Lost()
		timer := time.NewTimer(l.store.connector.options.Timeout / 4)
		select {
		case <-l.life.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// do passes the connection to run, which must return when ctx ends. errNotRun
// means that run was not called.
func (l *listener) do(ctx context.Context, run func(*pgx.Conn) error) error {
	j := &job{run: run, done: make(chan error, 1)}
	l.mu.Lock()
	if !l.connected || l.job != nil {
		l.mu.Unlock()
		return errNotRun
	}
	l.job = j
	l.interrupt()
	l.mu.Unlock()
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
	}
	l.mu.Lock()
	if l.job == j && !j.began {
		l.job = nil
		j.done <- ctx.Err()
	}
	l.mu.Unlock()
	return <-j.done
}

func (l *listener) serve(conn *pgx.Conn) {
	l.mu.Lock()
	j := l.job
	if j != nil {
		j.began = true
	}
	l.mu.Unlock()
	if j == nil {
		return
	}
	err := j.run(conn)
	l.mu.Lock()
	l.job = nil
	l.mu.Unlock()
	j.done <- err
}

func (l *listener) disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connected, l.lost, l.interrupt = false, true, nil
	if l.job != nil {
		l.job.done <- errNotRun
		l.job = nil
	}
	for channel := range l.channels {
		l.channels[channel] = false
	}
	for channel, callers := range l.waiting {
		l.channels[channel] = false
		answer(callers)
	}
	clear(l.waiting)
}

func answer(callers []chan<- bool) {
	for _, c := range callers {
		c <- true
	}
}

// connect receives notices until its connection breaks. The timeout is short,
// because callers are waiting.
func (l *listener) connect() error {
	ctx, cancel := context.WithTimeout(l.life, l.store.connector.options.Timeout/4)
	defer cancel()
	db, err := l.store.DB()
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	cancel()
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(c any) error {
		pg, ok := c.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the *sql.DB uses %T, which is not pgx", c)
		}
		err := l.receive(pg.Conn())
		// The connection has subscriptions, so it must not return to the pool.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = pg.Conn().Close(ctx)
		return errors.Join(err, sql.ErrConnDone)
	})
}

func (l *listener) receive(conn *pgx.Conn) error {
	if err := l.echo(conn); err != nil {
		return err
	}
	if err := l.subscribe(conn, l.restart()); err != nil {
		return err
	}
	if l.lost {
		l.store.Host.Lost() // notices may have been missed until now
	}
	l.mu.Lock()
	l.connected, l.interrupt = true, func() {}
	l.mu.Unlock()
	for {
		if err := l.subscribe(conn, l.wanted()); err != nil {
			return err
		}
		l.serve(conn)
		if err := l.wait(conn); err != nil {
			return err
		}
	}
}

// echo verifies that notices from another connection reach conn. Some proxies
// deliver a notice only to its sender.
func (l *listener) echo(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(l.life, l.store.connector.options.Timeout/4)
	defer cancel()
	channel := l.store.connector.options.schema + "_" + strings.ToLower(rand.Text())
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	db, err := l.store.DB()
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "NOTIFY "+channel); err != nil {
		return err
	}
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return fmt.Errorf("no notices arrive: %w", err)
	}
	if n == nil {
		return errors.New("no notices arrive: the OnNotification of the *sql.DB takes them")
	}
	_, err = conn.Exec(ctx, "UNLISTEN "+channel)
	return err
}

func (l *listener) restart() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.channels))
}

// wanted returns the channels to subscribe to, and wakes callers whose channel
// is already subscribed.
func (l *listener) wanted() (channels []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for channel, callers := range l.waiting {
		if l.channels[channel] {
			answer(callers)
			delete(l.waiting, channel)
			continue
		}
		channels = append(channels, channel)
	}
	return channels
}

func (l *listener) subscribe(conn *pgx.Conn, channels []string) error {
	if len(channels) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.life, l.store.connector.options.Timeout/4)
	defer cancel()
	if _, err := conn.Exec(ctx, "LISTEN "+strings.Join(channels, "; LISTEN ")); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, channel := range channels {
		l.channels[channel] = true
	}
	return nil
}

// wait receives one notice or is interrupted, which leaves the connection
// usable.
func (l *listener) wait(conn *pgx.Conn) error {
	ctx, cancel := context.WithCancel(l.life)
	defer cancel()
	l.mu.Lock()
	l.interrupt = cancel
	wanted := len(l.waiting) > 0 || l.job != nil
	l.mu.Unlock()
	if wanted {
		return nil
	}
	n, err := conn.WaitForNotification(ctx)
	if err == nil {
		if n, ok := parseNotice(n.Payload); ok {
			l.store.Host.Gone(n.queue, n.name, n.why, n.proof)
		}
		return nil
	}
	if conn.IsClosed() || l.life.Err() != nil {
		return err
	}
	return nil
}

type notice struct {
	why                driver.Cause
	queue, name, proof string
}

// parseNotice parses a payload written by the function tell of schema.sql.
func parseNotice(payload string) (n notice, ok bool) {
	parts := append(strings.Split(payload, "\n"), "") // the proof may be missing
	if len(parts) < 4 {
		return n, false
	}
	n = notice{driver.Changed, parts[2], parts[1], parts[3]}
	if parts[0] == "r" {
		n.why = driver.Released
	}
	return n, true
}
