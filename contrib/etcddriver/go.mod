module github.com/dlock-go/dlock/contrib/etcddriver

go 1.25.0

require github.com/dlock-go/dlock v0.1.0
