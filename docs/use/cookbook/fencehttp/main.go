// The program fencehttp serves prices, which only the lock's holder may set.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	_ "github.com/dlock-go/dlock/memdriver"
)

// service handles requests. The lock of a price is named after the URL path.
func service(set http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("PUT /price/{name}", new(fence.Marks).Handler(set, lockName))
	return mux
}

func lockName(r *http.Request) string { return "price/" + r.PathValue("name") }

// put sets a price, and sends the token of the lock in a header.
func put(ctx context.Context, name string, token int64, url, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	fence.SetToken(r.Header, name, token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		return nil
	case http.StatusPreconditionFailed:
		return fence.ErrStale // stop: a later holder has the lock
	}
	return fmt.Errorf("put %s: %s", url, response.Status)
}

func main() {
	server := httptest.NewServer(service(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		price, _ := io.ReadAll(r.Body)
		fmt.Printf("%s is %s\n", r.PathValue("name"), price)
	})))
	defer server.Close()

	client, err := dlock.Open("mem", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.RWMutex("price/tea").WithLock(context.Background(), func(ctx context.Context, lock *dlock.Lock) error {
		return put(ctx, "price/tea", lock.Token(), server.URL+"/price/tea", "3.20")
	})
	if err != nil {
		log.Fatal(err)
	}
}
