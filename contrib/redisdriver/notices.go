package redisdriver

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

func (b *backend) Start(h session.Host) {
	b.host = h
	h.Go(func(ctx context.Context) { b.listen(ctx, b.first) })
	if b.link.sentinels() {
		h.Go(b.link.followSentinels)
	}
}

func (b *backend) Listening(string, bool) bool { return b.listening.Load() }

// Subscribe implements [session.Notifier]. The store keeps a session's watches,
// so the session need not repeat them after its connection breaks.
func (b *backend) Subscribe(ctx context.Context, q session.Query) (now session.Snapshot, err error) {
	var reply any
	switch {
	case q.Names == nil:
		reply, err = b.eval(ctx, watchQueueScript, q.Queue)
	case q.Own == "":
		return session.LookAt(ctx, b, q)
	default:
		args := []any{q.Queue, q.Own}
		for _, name := range q.Names {
			args = append(args, name)
		}
		reply, err = b.eval(ctx, watchScript, args...)
	}
	if err == nil {
		now.Nodes, err = b.nodes(reply)
	}
	return now, err
}

func (b *backend) subscribe(ctx context.Context) (*redis.PubSub, error) {
	p, err := doOn(ctx, b.link.listener, func(client *redis.Client) (*redis.PubSub, error) {
		p := client.Subscribe(ctx, b.key("c:"+b.id))
		_, err := p.ReceiveTimeout(ctx, client.Options().ReadTimeout)
		if err != nil {
			_ = p.Close()
			return nil, err
		}
		return p, nil
	})
	b.listening.Store(err == nil)
	return p, err
}

// listen receives notices until the session ends, and subscribes again whenever
// the connection breaks.
func (b *backend) listen(ctx context.Context, p *redis.PubSub) {
	defer context.AfterFunc(ctx, b.link.close)() // interrupts receive
	const shortest = 20 * time.Millisecond
	longest := max(shortest, min(b.timeout/8, time.Second))
	for pause := shortest; ; pause = min(2*pause, longest) {
		if p != nil {
			began := time.Now()
			b.receive(ctx, p)
			_ = p.Close()
			b.listening.Store(false)
			if time.Since(began) > longest { // the connection worked for a while
				pause = shortest
			}
			b.host.Lost()
		}
		if !session.Sleep(b.link.life, pause) {
			return
		}
		limited, cancel := context.WithTimeout(ctx, b.timeout/2)
		p, _ = b.subscribe(limited)
		cancel()
		if p != nil {
			b.host.Lost()
		}
	}
}

// receive passes on notices until an error or a timeout, which may leave a
// notice half read.
func (b *backend) receive(ctx context.Context, p *redis.PubSub) {
	defer b.ping(ctx, p)()
	for ctx.Err() == nil {
		received, err := p.ReceiveTimeout(ctx, b.timeout/2)
		if err != nil {
			return
		}
		switch m := received.(type) {
		case *redis.Subscription: // go-redis has resubscribed on its own
			b.host.Lost()
		case *redis.Message:
			b.announce(m.Payload)
		}
	}
}

func (b *backend) announce(text string) {
	if n, ok := parseNotice(text); ok && n.name == "" {
		b.host.Changed(n.queue)
	} else if ok {
		b.host.Gone(n.queue, n.name, n.why, n.proof)
	}
}

// notice says that a node was removed or, if name is empty, that the queue
// changed.
type notice struct {
	why                driver.Cause
	name, proof, queue string
}

func parseNotice(text string) (n notice, ok bool) {
	parts := strings.SplitN(text, "/", 4)
	if len(parts) < 4 {
		return n, false
	}
	n = notice{name: parts[1], proof: parts[2], queue: parts[3]}
	if parts[0] == "r" {
		n.why = driver.Released
	}
	return n, true
}

// ping pings the server regularly, so that only a broken connection is silent.
func (b *backend) ping(ctx context.Context, p *redis.PubSub) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var pinging sync.WaitGroup
	pinging.Go(func() {
		for session.Sleep(ctx, b.timeout/4) {
			_ = p.Ping(ctx) // if it fails, receive times out
		}
	})
	return func() {
		cancel()
		pinging.Wait()
	}
}
