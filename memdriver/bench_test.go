package memdriver_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

func benchSession(b *testing.B, st *memdriver.Store) driver.Session {
	b.Helper()
	s, err := st.Connect(context.Background())
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close() })
	return s
}

func createDelete(b *testing.B, s driver.Session, queue string) {
	p, err := s.Create(context.Background(), queue, newNode)
	if err != nil {
		b.Error(err)
		return
	}
	assert.NoError(b, s.Delete(context.Background(), queue, p.Place, driver.Changed))
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
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		w, err := s.Watch(context.Background(), "stock/42", p.Place)
		require.NoError(b, err)
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
