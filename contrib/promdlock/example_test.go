package promdlock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/promdlock"
	_ "github.com/dlock-go/dlock/memdriver"
)

func Example() {
	registry := prometheus.NewRegistry()
	trace, err := promdlock.New(registry)
	if err != nil {
		log.Fatal(err)
	}
	client, err := dlock.Open("mem", "", dlock.WithTrace(trace))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	lock, err := client.RWMutex("stock/42").Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "dlock_held") {
			fmt.Print(line)
		}
	}
	fmt.Println(lock.Unlock())
	// Output:
	// dlock_held{mode="exclusive",recipe="election"} 0
	// dlock_held{mode="exclusive",recipe="lock"} 1
	// dlock_held{mode="exclusive",recipe="majority"} 0
	// dlock_held{mode="shared",recipe="lock"} 0
	// dlock_held{mode="shared",recipe="semaphore"} 0
	// <nil>
}
