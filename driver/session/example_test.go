package session_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// shelf keeps one queue in memory. Its sessions never expire.
type shelf struct {
	mu    sync.Mutex
	nodes []session.Node
	last  int64 // last sequence, which is also the last token
}

func (s *shelf) Begin(context.Context, time.Duration) (session.Begun, error) {
	return session.Begun{}, nil
}

func (s *shelf) Beat(context.Context) (time.Duration, error) { return time.Hour, nil }

func (s *shelf) End(context.Context) error { return nil }

func (s *shelf) Cancel(context.Context, []session.Change) error { return nil } // no Create has an unknown outcome

func (s *shelf) Do(_ context.Context, c session.Change) (r session.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Kind == session.Create {
		s.last++
		name := driver.FormatName(c.Prefix, s.last)
		s.nodes = append(s.nodes, session.Node{Name: name, Token: s.last})
		r.Place = driver.Place{Node: driver.Node{Name: name, Seq: s.last}, Token: s.last}
		r.Nodes = slices.Clone(s.nodes)
		return r, nil
	}
	i := slices.IndexFunc(s.nodes, func(n session.Node) bool { return n.Token == c.Place.Token })
	if i < 0 {
		return r, driver.ErrGone
	}
	switch c.Kind {
	case session.Delete:
		s.nodes = slices.Delete(s.nodes, i, i+1)
	case session.Replace:
		s.nodes[i].Name = driver.FormatName(c.Prefix, c.Place.Seq)
	}
	return r, nil
}

func (s *shelf) Look(_ context.Context, ask []session.Query) ([]session.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Repeat([]session.Snapshot{{Nodes: slices.Clone(s.nodes)}}, len(ask)), nil
}

func Example() {
	ctx := context.Background()
	s, err := session.Connect(ctx, new(shelf), session.Config{Name: "shelf", ID: "me", Timeout: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	web := driver.NodeSpec{Prefix: "web-W-", Predecessor: func(ahead []driver.Node) int { return len(ahead) - 1 }}
	holder, _ := s.Create(ctx, "stock/42", web)
	waiter, _ := s.Create(ctx, "stock/42", web)
	fmt.Println(holder.Name, "is followed by", waiter.Name)

	_ = s.Delete(ctx, "stock/42", holder.Place, driver.Released)
	<-waiter.Watch.C // ends when the session next polls the queue
	nodes, _ := s.List(ctx, "stock/42")
	fmt.Println(nodes[0].Name, "is the first")
	// Output:
	// web-W-0000000001 is followed by web-W-0000000002
	// web-W-0000000002 is the first
}
