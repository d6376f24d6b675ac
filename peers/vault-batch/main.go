// Command vault-batch drives an Infisical with the vendor's own Go SDK, the one of its clients that
// speaks batches: vault-batch ADDRESS AUTHORITY CLIENT_ID CLIENT_SECRET, the authority being a
// certificate in base64. Prints a line for every check that holds, and ends with status 1 at the first
// that does not.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	infisical "github.com/infisical/go-sdk"
	sdkerrors "github.com/infisical/go-sdk/packages/errors"
	"github.com/infisical/go-sdk/packages/models"
)

const environment = "dev"

var checks int

func holds(what string, isSo bool) {
	if !isSo {
		fmt.Println("does not hold:", what)
		os.Exit(1)
	}
	checks++
	fmt.Println("ok ", what)
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("not done:", err)
		os.Exit(1)
	}
	return value
}

func refused(what string, status int, words string, err error) {
	var told *sdkerrors.APIError
	holds(fmt.Sprintf("%s is refused with %d: %v", what, status, err),
		errors.As(err, &told) && told.StatusCode == status && strings.Contains(told.ErrorMessage, words))
}

func names(secrets []models.Secret) []string {
	var all []string
	for _, secret := range secrets {
		all = append(all, secret.SecretKey+"="+secret.SecretValue)
	}
	slices.Sort(all)
	return all
}

func main() {
	address, authority, id, secret := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	no := false
	client := infisical.NewInfisicalClient(context.Background(), infisical.Config{
		SiteUrl:          address,
		CaCertificate:    "-----BEGIN CERTIFICATE-----\n" + authority + "\n-----END CERTIFICATE-----\n",
		AutoTokenRefresh: &no,
		SilentMode:       true,
	})
	login := must(client.Auth().UniversalAuthLogin(id, secret))
	holds("a login gives a bearer token for thirty days", login.TokenType == "Bearer" && login.ExpiresIn == 2592000)

	secrets := client.Secrets()
	listed := must(secrets.ListSecrets(infisical.ListSecretsOptions{ProjectSlug: "tazlab", Environment: environment, SecretPath: "/"}))
	project := listed.Secrets[0].Workspace
	holds("a list has an ETag", listed.ETag != "")
	holds("references stay as they are unless told otherwise",
		slices.Equal(names(listed.Secrets), []string{"HOST=db.example.net", "URL=https://${HOST}"}))

	folder := must(client.Folders().Create(infisical.CreateFolderOptions{ProjectID: project, Environment: environment, Name: "batch"}))
	holds("a folder is made", folder.Name == "batch")
	batch := func(path string, all ...infisical.BatchCreateSecret) ([]models.Secret, error) {
		return secrets.Batch().Create(infisical.BatchCreateSecretsOptions{
			ProjectID: project, Environment: environment, SecretPath: path, Secrets: all,
		})
	}
	one := infisical.BatchCreateSecret{SecretKey: "ONE", SecretValue: "  1\n\n", SecretComment: " first "}
	two := infisical.BatchCreateSecret{SecretKey: "TWO", SecretValue: "2"}
	three := infisical.BatchCreateSecret{SecretKey: "THREE", SecretValue: "3"}
	made := must(batch("/batch", one, two))
	holds("many are made at once, trimmed", slices.Equal(names(made), []string{"ONE=1\n", "TWO=2"}))
	at := func(secret models.Secret) bool {
		return secret.Version == 1 && secret.Environment == environment && secret.Workspace == project
	}
	holds("each is told with its place and version", at(made[0]) && at(made[1]))
	list := func() []models.Secret {
		return must(secrets.List(infisical.ListSecretsOptions{ProjectID: project, Environment: environment, SecretPath: "/batch"}))
	}
	holds("they are there", slices.Equal(names(list()), []string{"ONE=1\n", "TWO=2"}))
	comments := list()[slices.IndexFunc(list(), func(secret models.Secret) bool { return secret.SecretKey == "ONE" })].SecretComment
	holds("with their comments, trimmed", comments == "first")

	_, err := batch("/batch", three, one, two)
	refused("what exists already", 400, "Secret already exists: ONE,TWO", err)
	holds("and then none of them is made", len(list()) == 2)
	_, err = batch("/nowhere", three)
	refused("a folder that is not there", 404, "", err)
	_, err = batch("/batch", infisical.BatchCreateSecret{SecretKey: "A/B", SecretValue: "x"})
	refused("a name with a slash", 422, "", err)
	_, err = batch("/batch")
	refused("nothing", 422, "", err)

	changed := must(secrets.Update(infisical.UpdateSecretOptions{
		SecretKey: "TWO", ProjectID: project, Environment: environment, SecretPath: "/batch", NewSecretValue: "22",
	}))
	holds("one of them is changed", changed.Version == 2 && changed.SecretValue == "22")
	for _, name := range []string{"ONE", "TWO"} {
		must(secrets.Delete(infisical.DeleteSecretOptions{
			SecretKey: name, ProjectID: project, Environment: environment, SecretPath: "/batch",
		}))
	}
	holds("all of them are removed", len(list()) == 0)
	_, err = secrets.Retrieve(infisical.RetrieveSecretOptions{
		SecretKey: "ONE", ProjectID: project, Environment: environment, SecretPath: "/batch",
	})
	refused("one that is gone", 404, "", err)
	must(client.Folders().Delete(infisical.DeleteFolderOptions{FolderName: "batch", ProjectID: project, Environment: environment, Path: "/"}))
	isLeft := false
	for _, folder := range must(client.Folders().List(infisical.ListFoldersOptions{
		ProjectID: project, Environment: environment, Path: "/",
	})) {
		isLeft = isLeft || folder.Name == "batch"
	}
	holds("the folder is removed", !isLeft)
	fmt.Printf("%d checks hold\n", checks)
}
