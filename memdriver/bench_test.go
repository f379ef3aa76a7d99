package memdriver_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

func benchSession(b *testing.B, st *memdriver.Store) driver.Session {
	b.Helper()
	s, err := st.Connect(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}

func createDelete(b *testing.B, s driver.Session, queue string) {
	p, err := s.Create(context.Background(), queue, newNode)
	if err != nil {
		b.Error(err)
		return
	}
	if err := s.Delete(context.Background(), queue, p.Place, driver.Changed); err != nil {
		b.Error(err)
	}
}

func BenchmarkCreateDelete(b *testing.B) {
	s := benchSession(b, memdriver.New())
	b.ReportAllocs()
	for b.Loop() {
		createDelete(b, s, "stock/42")
	}
}

func BenchmarkCreateDeleteParallel(b *testing.B) {
	st := memdriver.New()
	var worker atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		s := benchSession(b, st)
		queue := "stock/" + strconv.FormatInt(worker.Add(1), 10)
		for pb.Next() {
			createDelete(b, s, queue)
		}
	})
}

func BenchmarkCreateDeleteBehind10000(b *testing.B) {
	s := benchSession(b, memdriver.New())
	for range 10_000 {
		if _, err := s.Create(context.Background(), "stock/42", newNode); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		createDelete(b, s, "stock/42")
	}
}

func BenchmarkWatch(b *testing.B) {
	s := benchSession(b, memdriver.New())
	p, err := s.Create(context.Background(), "stock/42", newNode)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		w, err := s.Watch(context.Background(), "stock/42", p.Place)
		if err != nil {
			b.Fatal(err)
		}
		w.Stop()
	}
}

func BenchmarkList10000(b *testing.B) {
	s := benchSession(b, memdriver.New())
	for range 10_000 {
		if _, err := s.Create(context.Background(), "stock/42", newNode); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.List(context.Background(), "stock/42"); err != nil {
			b.Fatal(err)
		}
	}
}
