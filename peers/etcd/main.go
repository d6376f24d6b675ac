// Command etcd is etcd's own server, built from its published module. Debian's is of the 3.4 series, which cannot tell a
// watch how far it has come: API servers of today then end watches with errors that no cluster shows.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
