package handmade

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/contrib/redisdriver"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/postgres"
	"github.com/dlock-go/dlock/recipes"
)

const name = "stock/42"

var errNotHeld = errors.New("the lock is not held")

func newLocker(s setting, c *contender) (locker, error) {
	switch s.kind {
	case "dlock":
		return newDlock(s, c)
	case "redlock":
		return newRedlock(s, c), nil
	case "row", "for update", "advisory":
		driver, dsn, _ := strings.Cut(s.servers[0], " ")
		db, err := sql.Open(driver, dsn)
		base := onDB{db}
		return map[string]locker{"row": &rowLock{base, s, c}, "for update": &forUpdate{onDB: base}, "advisory": &advisory{onDB: base}}[s.kind], err
	}
	return &keyLock{server: redis.NewClient(&redis.Options{Addr: s.servers[0], MaxRetries: -1}), setting: s, c: c, value: rand.Text()}, nil
}

// dlocker is a lock of dlock. Its setting has one server: "<driver> <dsn>".
type dlocker struct {
	client *dlock.Client
	held   *dlock.Lock
}

func newDlock(s setting, c *contender) (locker, error) {
	driver, dsn, _ := strings.Cut(s.servers[0], " ")
	waiting := func(context.Context, recipes.WaitingInfo) { c.wait() }
	client, err := dlock.Open(driver, dsn+"session_timeout="+s.expiry.String(), dlock.WithTrace(&recipes.Trace{Waiting: waiting}))
	return &dlocker{client: client}, err
}

func (l *dlocker) lock(ctx context.Context) (token int64, err error) {
	if l.held, err = l.client.RWMutex(name).Lock(ctx); err == nil {
		token = l.held.Token()
	}
	return token, err
}

func (l *dlocker) check() error                 { return l.held.Err() }
func (l *dlocker) unlock(context.Context) error { return l.held.Unlock() }
func (l *dlocker) close() error                 { return l.client.Close() }

// An onDB cannot check for a loss without a statement to the server.
type onDB struct{ *sql.DB }

func (onDB) check() error   { return nil }
func (l onDB) close() error { return l.Close() }

// A rowLock is held by whoever inserted a row. Contenders delete old rows.
type rowLock struct {
	onDB
	setting
	c *contender
}

func (l *rowLock) lock(ctx context.Context) (int64, error) {
	return 0, l.c.retry(ctx, func() (bool, error) {
		now := time.Now().Add(l.ahead)
		_, err := l.ExecContext(ctx, "DELETE FROM held WHERE name = $1 AND expires < $2", name, now.UnixMilli())
		if err != nil {
			return false, err
		}
		result, err := l.ExecContext(ctx, "INSERT INTO held VALUES ($1, $2) ON CONFLICT DO NOTHING", name, now.Add(l.expiry).UnixMilli())
		if err != nil {
			return false, err
		}
		n, err := result.RowsAffected()
		return n == 1, err
	})
}

func (l *rowLock) unlock(ctx context.Context) error {
	_, err := l.ExecContext(ctx, "DELETE FROM held WHERE name = $1", name)
	return err
}

// A forUpdate is a row locked by a transaction, which ends with its connection.
type forUpdate struct {
	onDB
	tx *sql.Tx
}

func (l *forUpdate) lock(ctx context.Context) (_ int64, err error) {
	if l.tx, err = l.BeginTx(ctx, nil); err == nil {
		_, err = l.tx.ExecContext(ctx, "SELECT value FROM item WHERE id = 1 FOR UPDATE")
	}
	return 0, err
}

func (l *forUpdate) unlock(ctx context.Context) error {
	_, err := l.tx.ExecContext(ctx, "UPDATE item SET value = value - 30 WHERE id = 1")
	return errors.Join(err, l.tx.Commit())
}

// An advisory is a lock in PostgreSQL's memory that its connection can take
// again.
type advisory struct {
	onDB
	conn *sql.Conn
}

func (l *advisory) lock(ctx context.Context) (_ int64, err error) {
	if l.conn, err = l.Conn(ctx); err == nil {
		_, err = l.conn.ExecContext(ctx, "SELECT pg_advisory_lock(42)")
	}
	return 0, err
}

func (l *advisory) unlock(ctx context.Context) (err error) {
	var unlocked bool
	if err = l.conn.QueryRowContext(ctx, "SELECT pg_advisory_unlock(42)").Scan(&unlocked); err == nil && !unlocked {
		err = errNotHeld
	}
	return errors.Join(err, l.conn.Close())
}

// A keyLock is a Redis key, set by its holder. Its kinds are the stages in
// which such locks usually evolve:
//
//   - "setnx": SETNX, and DEL to unlock.
//   - "setnx, expire": SETNX, then EXPIRE.
//   - "set nx px": both in one command.
//   - "get, del": the key has a random value, compared before DEL.
//   - "script": a script compares and deletes.
//   - "watchdog": a goroutine extends the expiry during long work.
//   - "watchdog until unlocked": only a successful unlock ends the goroutine.
type keyLock struct {
	setting
	server *redis.Client
	c      *contender
	value  string
	end    context.CancelFunc
}

const key = "lock:42"

func (l *keyLock) lock(ctx context.Context) (int64, error) {
	err := l.c.retry(ctx, func() (bool, error) { return l.set(ctx) })
	if err == nil && strings.HasPrefix(l.kind, "watchdog") {
		ctx, l.end = context.WithCancel(ctx)
		go l.watch(ctx)
	}
	return 0, err
}

func (l *keyLock) set(ctx context.Context) (ok bool, err error) {
	if !strings.HasPrefix(l.kind, "setnx") {
		return setNX(ctx, l.server, l.value, l.expiry)
	}
	ok, err = l.server.Do(ctx, "SETNX", key, 1).Bool()
	if ok && l.kind == "setnx, expire" {
		l.c.reach("EXPIRE")
		err = l.server.Expire(ctx, key, l.expiry).Err()
	}
	return ok, err
}

func setNX(ctx context.Context, server *redis.Client, value string, expiry time.Duration) (bool, error) {
	err := server.SetArgs(ctx, key, value, redis.SetArgs{Mode: "NX", TTL: expiry}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// ifOwn atomically runs a command if the key has the given value.
func ifOwn(ctx context.Context, server *redis.Client, value, command string) error {
	script := "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call(" + command + ") end return 0"
	n, err := server.Eval(ctx, script, []string{key}, value).Int()
	if err == nil && n == 0 {
		err = errNotHeld
	}
	return err
}

func (l *keyLock) watch(ctx context.Context) {
	for ticker := time.NewTicker(l.expiry / 3); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			l.c.reach("extension")
			_ = ifOwn(ctx, l.server, l.value, fmt.Sprintf("'PEXPIRE', KEYS[1], %d", l.expiry.Milliseconds()))
		}
	}
}

func (l *keyLock) check() error { return nil } // only a request would reveal a loss

func (l *keyLock) unlock(ctx context.Context) error {
	switch l.kind {
	case "get, del":
		if value, err := l.server.Get(ctx, key).Result(); err != nil || value != l.value {
			return cmp.Or(err, errNotHeld)
		}
		l.c.reach("DEL")
		fallthrough
	case "setnx", "setnx, expire", "set nx px":
		return l.server.Del(ctx, key).Err()
	}
	err := ifOwn(ctx, l.server, l.value, "'DEL', KEYS[1]")
	if l.kind == "watchdog" || err == nil && l.end != nil {
		l.end()
	}
	return err
}

func (l *keyLock) close() error { return l.server.Close() }

// A redlock is held by whoever sets the key on most masters in time.
type redlock struct {
	setting
	masters []*redis.Client
	c       *contender
	value   string
	until   time.Time // end of validity
}

func newRedlock(s setting, c *contender) *redlock {
	l := &redlock{setting: s, value: rand.Text(), c: c}
	for _, addr := range s.servers {
		const limit = 2 * time.Second // for a master that does not answer
		l.masters = append(l.masters, redis.NewClient(&redis.Options{
			Addr: addr, MaxRetries: -1, DialTimeout: limit, ReadTimeout: limit, WriteTimeout: limit,
		}))
	}
	return l
}

func (l *redlock) lock(ctx context.Context) (int64, error) {
	return 0, l.c.retry(ctx, func() (bool, error) {
		began, set := time.Now(), atomic.Int64{}
		l.onEach(func(master *redis.Client) error {
			if ok, _ := setNX(ctx, master, l.value, l.expiry); ok {
				set.Add(1)
			}
			return nil
		})
		drift := l.expiry/100 + 2*time.Millisecond
		l.until = began.Add(l.expiry - drift)
		if int(set.Load()) > len(l.masters)/2 && l.check() == nil {
			return true, nil
		}
		return false, l.unlock(ctx)
	})
}

func (l *redlock) onEach(ask func(*redis.Client) error) {
	var asked errgroup.Group
	for _, master := range l.masters {
		asked.Go(func() error { return ask(master) })
	}
	_ = asked.Wait()
}

func (l *redlock) check() error {
	if !time.Now().Before(l.until) {
		return errNotHeld
	}
	return nil
}

func (l *redlock) unlock(ctx context.Context) error {
	l.onEach(func(master *redis.Client) error { return ifOwn(ctx, master, l.value, "'DEL', KEYS[1]") })
	return nil
}

func (l *redlock) close() error {
	l.onEach((*redis.Client).Close)
	return nil
}
