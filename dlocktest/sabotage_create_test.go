package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var createSabotages = []sabotage{
	{"forgets what a cancelled create made", "looking at ctx after the request, and taking its end for a failure",
		of(func(s base) orphans { return orphans{s} })},
	{"lets go of a request that is on its way", "a client library without contexts: the request goes on in a goroutine that nobody waits for",
		of(func(s base) letsGo { return letsGo{s} })},
	{"cleans up too much", "removing whatever has its own host name",
		func(s base, st *memdriver.Store) driver.Session { return sweeper{s, st} }},
	{"leaves its node when the reply is lost", "returning the connection's error as it is",
		of(func(s base) *losesCreates { return &losesCreates{releasing: s, after: leavesIt} })},
	{"creates once more when the reply is lost", "a client library that repeats requests by itself",
		of(func(s base) *losesCreates { return &losesCreates{releasing: s, after: createsAgain} })},
	{"takes any node of its prefix for its own when the reply is lost", "looking for its node by host name and mode instead of by data",
		of(func(s base) *losesCreates { return &losesCreates{releasing: s, after: adoptsAny} })},
}

// letsGo does not look at what became of a request whose caller has gone.
type letsGo struct{ *releasing }

func (s letsGo) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	type answer struct {
		p   driver.Place
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		p, err := s.releasing.Create(context.WithoutCancel(ctx), queue, prefix, data)
		answers <- answer{p, err}
	}()
	select {
	case a := <-answers:
		return a.p, a.err
	case <-ctx.Done():
		return driver.Place{}, ctx.Err()
	}
}

// losesCreates loses replies of creates by itself, and what it does after that is wrong.
type losesCreates struct {
	*releasing
	after func(s base, ctx context.Context, queue, prefix string, data []byte) (driver.Place, error)

	mu     sync.Mutex
	losses []bool
}

func (s *losesCreates) loseReply(op Op, committed bool) bool {
	if op != OpCreate {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses = append(s.losses, committed)
	return true
}

func (s *losesCreates) loss() (committed, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.losses) == 0 {
		return false, false
	}
	committed, s.losses = s.losses[0], s.losses[1:]
	return committed, true
}

func (s *losesCreates) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	committed, lost := s.loss()
	if !lost {
		return s.releasing.Create(ctx, queue, prefix, data)
	}
	if committed {
		if p, err := s.releasing.Create(ctx, queue, prefix, data); err != nil {
			return p, err
		}
	}
	return s.after(s.releasing, ctx, queue, prefix, data)
}

func leavesIt(base, context.Context, string, string, []byte) (driver.Place, error) {
	return driver.Place{}, fmt.Errorf("%w: connection reset by peer", driver.ErrUnavailable)
}

func createsAgain(s base, ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	return s.Create(ctx, queue, prefix, data)
}

func adoptsAny(s base, ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	nodes, err := s.List(ctx, queue)
	mine := withPrefix(nodes, prefix)
	if err != nil || len(mine) == 0 {
		return s.Create(ctx, queue, prefix, data)
	}
	last := mine[len(mine)-1]
	info, err := s.Read(ctx, queue, last.Name)
	return driver.Place{Node: last, Token: info.Token}, err
}

type orphans struct{ *releasing }

func (s orphans) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(context.WithoutCancel(ctx), queue, prefix, data)
	time.Sleep(100 * time.Microsecond) // the reply takes its time
	if ctx.Err() != nil {
		return driver.Place{}, ctx.Err()
	}
	return p, err
}

type sweeper struct {
	*releasing
	store *memdriver.Store
}

func (s sweeper) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	if errors.Is(err, driver.ErrUnavailable) {
		nodes, _ := s.List(ctx, queue)
		for _, n := range withPrefix(nodes, prefix) {
			s.store.Faults().RemoveNode(queue, n.Name)
		}
	}
	return p, err
}
