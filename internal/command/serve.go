package command

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

const serveHelp = `Usage: dlock serve [flags] [PREFIX]

Serves what dlock top shows as a page for the browser, which refreshes itself. The
page only reads, and anybody on this machine can see it. Other machines can't: to
look from elsewhere, forward a port, as in ssh -L 8475:localhost:8475 HOST, or put a
proxy that asks for a password in front, which sends the header "Host: localhost".

However many browsers look, the store is asked once a second at most, and not at all
if nobody looks.

Exit status: 0 at Ctrl-C; 1, the address could not be listened on; 2, the arguments
are not valid.

Flags:
`

func serve(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	t := newTool("serve", serveHelp, "one prefix at most", args, stdout, stderr)
	listen := t.flags.String("listen", "localhost:8475", "loopback `address` to listen on; with port 0 any that is free")
	arguments, client, status := t.open(0, 1, dlock.WithReadOnly())
	if client == nil {
		return status
	}
	defer client.Close()
	host, _, err := net.SplitHostPort(*listen)
	if err == nil && !isLoopback(host) {
		err = fmt.Errorf("-listen %s: only a loopback address, such as localhost:8475, because the page asks for no password", *listen)
	}
	if err != nil {
		t.say(err.Error())
		return usageStatus
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return t.failed(err)
	}
	p := &page{tool: t, client: client, prefix: append(arguments, "")[0]}
	server := &http.Server{
		Handler: onlyFromHere(p), ReadTimeout: 10 * time.Second, WriteTimeout: t.timeout + 10*time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	fmt.Fprintf(stdout, "http://%s/ shows %s\n", listener.Addr(), printable(t.storeName()))
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return t.failed(err)
	}
	return 0
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// onlyFromHere refuses requests whose Host or Origin names another site.
// Otherwise a site whose name resolves to this machine could read the page.
func onlyFromHere(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin, host := r.Header.Get("Origin"), url.URL{Host: r.Host}
		switch {
		case !isLoopback(host.Hostname()):
			http.Error(w, "the Host must be localhost or a loopback address", http.StatusForbidden)
		case origin != "" && origin != "http://"+r.Host:
			http.Error(w, "not for pages of other sites", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			http.Error(w, "this page only reads", http.StatusMethodNotAllowed)
		case r.URL.Path != "/":
			http.NotFound(w, r)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

type page struct {
	tool   *tool
	client *dlock.Client
	prefix string

	mu   sync.Mutex // held while the store is read
	seen glance     // guarded by mu, as are err and next
	err  error
	next time.Time // when the store may be read again
}

// look returns the state of the locks, up to a second old. After an error, it
// is the last known state.
func (p *page) look(ctx context.Context) (glance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !time.Now().Before(p.next) {
		var seen glance
		if seen, p.err = p.tool.glance(context.WithoutCancel(ctx), p.client, p.prefix); p.err == nil {
			p.seen = seen
		}
		p.next = time.Now().Add(time.Second)
	}
	return p.seen, p.err
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen, err := p.look(r.Context())
	view := struct {
		Store, Err string
		Columns    []string
		Rows       [][]string
		Seen       glance
	}{printable(p.tool.storeName()), "", topColumns, seen.rows(), seen}
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
		"Content-Type":            "text/html; charset=utf-8", "Cache-Control": "no-store",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
	} {
		w.Header().Set(name, value)
	}
	if err != nil {
		view.Err = p.tool.clean(p.tool.explain(err))
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = html.Execute(w, view) // fails only if the browser has gone
}

var html = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en">
<meta http-equiv="refresh" content="2">
<title>Locks of {{.Store}}</title>
<style>
body { font: 15px system-ui, sans-serif; margin: 2em; color-scheme: light dark }
table { border-collapse: collapse }
th, td { text-align: left; padding: .3em 1.2em .3em 0; border-bottom: 1px solid #8884; font-variant-numeric: tabular-nums }
</style>
<h1>Locks of {{.Store}}</h1>
<p>{{if not .Seen.Time.IsZero}}As of {{.Seen.Time.Format "15:04:05"}}.{{end}}{{with .Err}} <strong>{{.}}</strong>{{end}}
{{if .Rows}}<table>
<tr>{{range .Columns}}<th scope="col">{{.}}{{end}}
{{range .Rows}}<tr>{{range .}}<td>{{.}}{{end}}
{{end}}</table>{{else if not .Err}}<p>Nobody holds a lock or waits for one.{{end}}
{{with .Seen.More}}<p>And {{.}} more locks.{{end}}
`))
