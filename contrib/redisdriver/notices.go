package redisdriver

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
)

// notice is a message from the store that a node was removed or, if name is
// empty, that the queue has changed.
type notice struct {
	queue, name string
	why         driver.Cause
}

func parseNotice(text string) (n notice, ok bool) {
	cause, rest, ok1 := strings.Cut(text, "/")
	name, queue, ok2 := strings.Cut(rest, "/")
	n = notice{queue: queue, name: name}
	if cause == "r" {
		n.why = driver.Released
	}
	return n, ok1 && ok2
}

// notices passes the store's notices to the session's watches, in order.
//
// A notice may arrive before the reply to the Create that armed its watch.
// Notices received during a Create are therefore buffered, and replayed once
// its watch is armed.
type notices struct {
	watches *watches.Set
	mu      sync.Mutex
	pending map[*arming]bool
}

type arming struct {
	queue  string
	missed []notice
	lost   bool // the subscription broke during the Create, so missed may be incomplete
}

func (n *notices) begin(queue string) *arming {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pending == nil {
		n.pending = make(map[*arming]bool)
	}
	a := &arming{queue: queue}
	n.pending[a] = true
	return a
}

func (n *notices) end(a *arming) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pending, a)
}

// arm arms the watch of a Create and replays the buffered notices to it. It
// returns the zero Watch if a notice may have been lost.
func (n *notices) arm(a *arming, p driver.Place, ahead driver.Node) driver.Watch {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.lost {
		return driver.Watch{}
	}
	w := n.watches.Arm(a.queue, p, ahead)
	for _, m := range a.missed {
		n.apply(m)
	}
	return w
}

func (n *notices) deliver(m notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for a := range n.pending {
		if a.queue == m.queue {
			a.missed = append(a.missed, m)
		}
	}
	n.apply(m)
}

func (n *notices) lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for a := range n.pending {
		a.lost = true
	}
}

func (n *notices) apply(m notice) {
	if m.name == "" {
		n.watches.Changed(m.queue)
		return
	}
	n.watches.Gone(m.queue, driver.Node{Name: m.name}, m.why)
}

func (s *session) subscribe(ctx context.Context) (*redis.PubSub, error) {
	return doOn(ctx, s.link.listener, func(client *redis.Client) (*redis.PubSub, error) {
		p := client.Subscribe(ctx, s.settings.key("c:"+s.id))
		_, err := p.ReceiveTimeout(ctx, client.Options().ReadTimeout)
		if err != nil {
			_ = p.Close()
			return nil, err
		}
		return p, nil
	})
}

// listen receives notices until the session ends. If the connection breaks, it
// subscribes again and has all watches checked, because notices may have been
// lost.
func (s *session) listen(p *redis.PubSub) {
	pauses := s.settings.newRetries()
	for {
		began := time.Now()
		s.receive(p)
		_ = p.Close()
		if time.Since(began) > pauses.longest { // a connection that breaks at once does not count as a success
			pauses.reset()
		}
		for {
			if s.lease.Err() != nil || !s.link.pause(pauses.next()) {
				return
			}
			ctx, cancel := context.WithTimeout(s.link.life, s.settings.timeout/2)
			next, err := s.subscribe(ctx)
			cancel()
			if err == nil {
				p = next
				break
			}
		}
		s.notices.lose()
		s.checkSoon()
	}
}

// receive delivers notices until the connection breaks or is silent for half a
// session timeout. It never reads again after a timeout, because the failed
// read may have consumed part of a notice.
func (s *session) receive(p *redis.PubSub) {
	defer s.ping(p)()
	for s.lease.Err() == nil {
		received, err := p.ReceiveTimeout(s.link.life, s.settings.timeout/2)
		if err != nil {
			return
		}
		switch m := received.(type) {
		case *redis.Subscription: // go-redis has resubscribed on its own
			s.notices.lose()
			s.checkSoon()
		case *redis.Message:
			if n, ok := parseNotice(m.Payload); ok {
				s.notices.deliver(n)
			}
		}
	}
}

// ping pings the server periodically, so that a connection is silent only if it
// is broken.
func (s *session) ping(p *redis.PubSub) (stop func()) {
	ctx, cancel := context.WithCancel(s.link.life)
	var pinging sync.WaitGroup
	pinging.Go(func() {
		tick := time.NewTicker(s.settings.timeout / 4)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = p.Ping(ctx) // if it fails, receive times out
			}
		}
	})
	return func() {
		cancel()
		pinging.Wait()
	}
}

// checkSoon wakes checkWatches.
func (s *session) checkSoon() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// checkWatches periodically checks all watched queues, because the store sends
// no notice for nodes that an operator removed or that were lost in a crash. If
// notices may have been lost, it checks at once.
func (s *session) checkWatches() {
	defer s.watches.End()
	tick := time.NewTicker(s.settings.timeout / 4)
	defer tick.Stop()
	pauses := s.settings.newRetries()
	for {
		select {
		case <-s.lease.Done():
			return
		case <-tick.C:
		case <-s.news:
		}
		for _, queue := range s.watches.Queues() {
			err := s.look(queue)
			if err == nil {
				pauses.reset()
			} else if errors.Is(err, driver.ErrUnavailable) && s.link.pause(pauses.next()) {
				s.checkSoon() // check all queues again
				break
			}
		}
	}
}

// look asks the store which of the watched nodes are still in the queue, and
// ends the watches of the others.
func (s *session) look(queue string) error {
	ctx, cancel := context.WithTimeout(s.link.life, s.settings.timeout/4)
	defer cancel()
	return s.watches.Look(queue, func() (places []driver.Place, version any, err error) {
		all, err := s.watched(ctx, queue)
		for _, c := range all {
			p := driver.Place{Node: c.Node}
			if c.owner == s.id {
				p.Token = c.Seq
			}
			places = append(places, p)
		}
		return places, nil, err
	})
}
