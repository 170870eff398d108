// Before anything is painted: dark or light as the person chose; without a choice as the system says.
(() => {
  const choice = localStorage.getItem("millstream.theme");
  if (choice === "dark" || choice === "light") document.documentElement.dataset.theme = choice;
})();
