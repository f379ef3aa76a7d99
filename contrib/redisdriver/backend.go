package redisdriver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

var (
	_ session.Notifier = (*backend)(nil)
	_ session.Reader   = (*backend)(nil)
)

// backend is the store as one session sees it. Each method runs one script.
type backend struct {
	*settings
	connector *connector
	id        string
	secret    string // makes operation IDs unpredictable
	link      *link
	received  receipt                   // from the last Begin, for the next
	grace     time.Duration             // longest grace of all sessions at Begin
	looked    atomic.Pointer[time.Time] // when the server's settings were last checked

	host      session.Host
	first     *redis.PubSub // the subscription made by Connect
	listening atomic.Bool   // whether notices arrive
}

func (b *backend) eval(ctx context.Context, script *redis.Script, args ...any) (any, error) {
	return b.link.eval(ctx, script, append([]any{b.id}, args...)...)
}

func (b *backend) Beat(ctx context.Context) (next time.Duration, err error) {
	if time.Since(*b.looked.Load()) >= settingsPause {
		if err := b.checkSettings(ctx); err != nil && !errors.Is(err, driver.ErrUnavailable) {
			return 0, fmt.Errorf("%w: %w", driver.ErrSessionEnded, err)
		}
	}
	reply, err := b.link.evalConfirmed(ctx, beatScript, b.id, b.timeout.Microseconds())
	if err != nil {
		return 0, err
	}
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return 0, errReply
	}
	b.link.confirmBy(parts[1])
	return micros(parts[0]), nil
}

func micros(reply any) time.Duration {
	n, _ := reply.(int64)
	return time.Duration(n) * time.Microsecond
}

// End implements [session.Store]. It closes b.link even if the request fails.
func (b *backend) End(ctx context.Context) error {
	b.link.close()
	last := newLink(b.settings)
	b.link.mu.Lock() // a dial in flight may change these
	last.addrs, last.moved = b.link.addrs, b.link.moved
	b.link.mu.Unlock()
	defer last.close()
	_, err := last.eval(ctx, closeScript, b.id)
	return err
}

func (b *backend) Do(ctx context.Context, c session.Change) (r session.Result, err error) {
	switch c.Kind {
	case session.Create:
		r, err = b.create(ctx, c)
	case session.Delete:
		why := "c"
		if c.Cause == driver.Released {
			why = "r"
		}
		_, err = b.eval(ctx, deleteScript, c.Queue, c.Place.Token, why)
	case session.Replace:
		var old any
		old, err = b.eval(ctx, replaceScript, c.Queue, c.Place.Token, c.Prefix)
		r.Place = c.Place
		r.Place.Name, _ = old.(string)
	case session.Remove:
		_, err = b.eval(ctx, removeScript, c.Queue, c.Place.Name, c.Place.Token)
	case session.SetValue:
		_, err = b.eval(ctx, setValueScript, c.Queue, c.Place.Token, c.Data)
	}
	if errors.As(err, new(dialError)) {
		err = session.Refused(err) // the request was never sent
	}
	return r, err
}

// operation returns the secret ID of a Create. Anyone can publish that a node
// was released, but it counts only with this ID.
func (b *backend) operation(number int64) string {
	id := strconv.FormatInt(number, 10)
	hash := sha256.Sum256([]byte(b.secret + id))
	return id + "-" + hex.EncodeToString(hash[:8])
}

func (b *backend) create(ctx context.Context, c session.Change) (r session.Result, err error) {
	watch := "0"
	if c.Predecessor != nil {
		watch = "1"
	}
	reply, err := b.eval(ctx, createScript, c.Queue, b.operation(c.Number), c.Prefix, c.Data, watch)
	if err != nil {
		return r, err
	}
	parts, _ := reply.([]any)
	if len(parts) != 3 {
		return r, errReply
	}
	text, _ := parts[0].(string)
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return r, errReply
	}
	before, err := b.nodes(parts[1])
	if err != nil {
		return r, err
	}
	r.Place = driver.Place{Node: driver.Node{Name: driver.FormatName(c.Prefix, seq), Seq: seq}, Token: seq}
	now, _ := parts[2].(int64)
	r.Created = time.UnixMicro(now)
	r.Nodes = append(before, session.Node{Name: r.Place.Name, Token: seq})
	if watch == "1" && len(before) > 0 {
		r.Announced = before[len(before)-1].Name
	}
	return r, nil
}

func (b *backend) Cancel(ctx context.Context, creates []session.Change) error {
	var operations []any
	for _, c := range creates {
		operations = append(operations, b.operation(c.Number))
	}
	_, err := b.eval(ctx, cancelScript, operations...)
	return err
}

// Look implements [session.Store]. If a query names nodes, Look asks only for
// these, because the queue may be long.
func (b *backend) Look(ctx context.Context, ask []session.Query) (found []session.Snapshot, err error) {
	var args []any
	for _, q := range ask {
		n := len(q.Names)
		if q.Names == nil {
			n = -1
		}
		args = append(args, q.Queue, n)
		for _, name := range q.Names {
			args = append(args, name)
		}
	}
	reply, err := b.eval(ctx, lookScript, args...)
	if err != nil {
		return nil, err
	}
	queues, _ := reply.([]any)
	if len(queues) != len(ask) {
		return nil, errReply
	}
	for _, members := range queues {
		nodes, err := b.nodes(members)
		if err != nil {
			return nil, err
		}
		found = append(found, session.Snapshot{Nodes: nodes})
	}
	return found, nil
}

func (b *backend) Read(ctx context.Context, queue, name string) (info driver.NodeInfo, err error) {
	reply, err := b.eval(ctx, readScript, queue, name)
	if err != nil {
		return info, err
	}
	parts, _ := reply.([]any)
	if len(parts) != 3 {
		return info, errReply
	}
	text, _ := parts[0].(string)
	m := parseMember(text)
	info = driver.NodeInfo{Owner: m.owner, Data: []byte(m.data)}
	if _, seq, ok := driver.ParseName(m.name); ok && m.owner != "" {
		now, _ := parts[2].(int64)
		info.Token, info.Created = seq, time.UnixMicro(min(seq, now)) // sequences may be ahead of the clock
		info.SessionLeft = micros(parts[1])
		if b.id == observer && info.SessionLeft <= 0 { // ended, but observers remove nothing
			return info, driver.ErrGone
		}
	}
	return info, nil
}

func (b *backend) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	reply, err := b.eval(ctx, valueScript, queue)
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

func (b *backend) Walk(ctx context.Context, prefix string) (queues []string, err error) {
	for cursor := any("0"); ; {
		reply, err := b.eval(ctx, walkScript, cursor, glob(b.key("q:"+prefix))+"*")
		if err != nil {
			return nil, err
		}
		page, _ := reply.([]any)
		if len(page) != 2 {
			return nil, errReply
		}
		keys, _ := page[1].([]any)
		for _, key := range keys {
			text, _ := key.(string)
			queues = append(queues, strings.TrimPrefix(text, b.key("q:")))
		}
		if cursor = page[0]; cursor == "0" {
			return queues, nil
		}
	}
}

// glob returns the Redis pattern that matches text literally.
func glob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
