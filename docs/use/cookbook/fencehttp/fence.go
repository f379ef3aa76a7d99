package main

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// fence keeps the greatest token of each path in memory. A service that
// restarts or has replicas must keep it in its database instead.
type fence struct{ resources sync.Map } // from path to *resource

type resource struct {
	mu    sync.Mutex
	token int64
}

// handler passes requests to next unless their token is lower than an earlier
// one for the same path. Use it only for paths of resources that exist, because
// it keeps every path that it has seen.
func (f *fence) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.Header.Values("Dlock-Token")
		token, err := strconv.ParseInt(strings.Join(values, ","), 10, 64)
		switch {
		case len(values) == 0:
			http.Error(w, "Dlock-Token is missing", http.StatusPreconditionRequired)
			return
		case err != nil || token < 1:
			http.Error(w, "Dlock-Token is not a token", http.StatusBadRequest)
			return
		}
		// Read the body first: a slow client must not block the resource.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))

		found, _ := f.resources.LoadOrStore(r.URL.Path, new(resource))
		res := found.(*resource)
		res.mu.Lock() // so that the comparison and the handler are one step
		defer res.mu.Unlock()
		if token < res.token {
			http.Error(w, "a later holder of the lock has written", http.StatusPreconditionFailed)
			return
		}
		res.token = token
		next.ServeHTTP(w, r)
	})
}
